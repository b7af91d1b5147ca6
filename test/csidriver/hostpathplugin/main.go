// Command hostpathplugin is the program that Kubernetes' storage and device specs run in the image
// hostpathplugin. It is a CSI driver for tests, whose volumes are directories
//
//	hostpathplugin --drivername=NAME --nodeid=NODE --endpoint=/csi/csi.sock --statedir=DIR ...
//
// or a proxy that provides the socket on a node for a driver in the suite's process.
//
//	hostpathplugin --endpoint=unix:///csi/csi.sock --proxy-endpoint=tcp://:9000
//
//	kubelet --connects--> endpoint --|
//	                                 |-- the proxy joins one connection of each side
//	the suite --dials, beforehand--> proxy-endpoint
//
// Both sides connect to the proxy. A connection of one side waits for a connection of the other side.
//
// The specs run csi-driver-host-path with these flags. This program replaces csi-driver-host-path,
// which is not available as a Go module.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	var c config
	endpoint := flag.String("endpoint", "unix:///csi/csi.sock", "address at which the node's programs connect to the driver")
	proxied := flag.String("proxy-endpoint", "", "address at which the driver's process connects; empty: run the driver")
	flag.Int("v", 0, "ignored; everything is logged")
	flag.StringVar(&c.name, "drivername", "hostpath.csi.k8s.io", "the driver's name")
	flag.StringVar(&c.node, "nodeid", "", "the driver's ID of this node")
	flag.StringVar(&c.state, "statedir", "/csi-data-dir", "directory of the volumes")
	flag.BoolVar(&c.attach, "enable-attach", false, "volumes must be attached before they are used")
	flag.BoolVar(&c.topology, "enable-topology", false, "volumes can be used only on this node")
	flag.BoolVar(&c.expands, "node-expand-required", false, "volumes must also be expanded on the node")
	flag.Int64Var(&c.most, "maxvolumespernode", 0, "maximum number of volumes that the driver reports for this node; 0: no limit")
	flag.IntVar(&c.attachLimit, "attach-limit", 0, "maximum number of attached volumes; 0: no limit")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *endpoint, *proxied, c); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, endpoint, proxied string, c config) error {
	in, err := listen(endpoint)
	if err != nil {
		return err
	}
	defer in.Close()
	if proxied == "" {
		return runDriver(ctx, c, in)
	}
	out, err := listen(proxied)
	if err != nil {
		return err
	}
	defer out.Close()
	log.Printf("joining connections to %s with connections to %s", endpoint, proxied)
	return runProxy(ctx, in, out)
}

// listen listens on tcp://HOST:PORT, unix://PATH, or a path.
func listen(endpoint string) (net.Listener, error) {
	network, address, found := strings.Cut(endpoint, "://")
	if !found {
		network, address = "unix", endpoint
	}
	if network == "unix" {
		if err := os.Remove(address); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove the socket of the last run: %w", err)
		}
	}
	return net.Listen(network, address)
}
