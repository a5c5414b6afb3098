// Package main is a whole cluster in one binary: it is etcd, kube-apiserver, kubelet, kubectl, helm …
// depending on the name it is called by. One binary links Kubernetes once instead of seven times.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	helm "helm.sh/helm/v4/pkg/cmd"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// commands by the name under which the binary is called.
var commands = map[string]func(args []string) int{
	"etcd":                    runEtcd,
	"helm":                    runHelm,
	"kubectl":                 func([]string) int { return cli.Run(kubectl.NewDefaultKubectlCommand()) },
	"kube-apiserver":          func([]string) int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func([]string) int { return cli.Run(controllers.NewControllerManagerCommand()) },
	"kube-scheduler":          func([]string) int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kube-proxy":              func([]string) int { return cli.Run(proxy.NewProxyCommand()) },
	// The kubelet installs a signal handler of its own: it gets a context without one.
	"kubelet": func([]string) int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
}

func main() {
	name := filepath.Base(os.Args[0])
	run, known := commands[name]
	if !known {
		fmt.Fprintf(os.Stderr, "%s: call this binary by one of these names: %s\n", name, names())
		os.Exit(2)
	}
	os.Exit(run(os.Args))
}

func names() string {
	all := make([]string, 0, len(commands))
	for name := range commands {
		all = append(all, name)
	}
	sort.Strings(all)
	return strings.Join(all, " ")
}

func runEtcd(args []string) int {
	etcdmain.Main(args) // ends the process itself on failure
	return 0
}

func runHelm(args []string) int {
	root, err := helm.NewRootCmd(os.Stdout, args[1:], helm.SetupLogging)
	if err != nil {
		fmt.Fprintln(os.Stderr, "helm:", err)
		return 1
	}
	return exitCode(root)
}

func exitCode(root *cobra.Command) int {
	if err := root.Execute(); err != nil {
		return 1 // cobra has printed it
	}
	return 0
}
