#include <cstring>

#include "yaie/cpu.h"

namespace yaie::cpu {

void run(const CopyBlocks& p) {
  for (int64_t i = 0; i < p.count; ++i)
    std::memcpy(static_cast<char*>(p.target) + p.target_ids[i] * p.block_bytes,
                static_cast<const char*>(p.source) + p.source_ids[i] * p.block_bytes,
                p.block_bytes);
}

}  // namespace yaie::cpu
