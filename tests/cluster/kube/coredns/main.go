// Package main is CoreDNS with only the plugins that a test cluster needs. It is a binary of its own
// because CoreDNS registers global flags (-p, -version, …) that kubectl and the kubelet would inherit.
package main

import (
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	coremain.Run()
}
