// Named checks that report as JSON lines, like checks.py.
export const URL = process.env.YAIE_COMPAT_URL ?? "http://127.0.0.1:8000";
export const MODEL = process.env.YAIE_COMPAT_MODEL ?? "demo";
const checks = [];

export function check(name, run) {
  checks.push([name, run]);
}

export async function main() {
  let failed = 0;
  for (const [name, run] of checks) {
    let outcome = "passed";
    let detail = "";
    try {
      await run();
    } catch (error) {
      failed += 1;
      outcome = "failed";
      detail = String(error?.stack ?? error).slice(0, 2000);
    }
    console.log(JSON.stringify({ check: name, outcome, detail }));
  }
  process.exit(failed ? 1 : 0);
}
