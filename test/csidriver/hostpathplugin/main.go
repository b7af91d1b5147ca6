// Command hostpathplugin is what Kubernetes' storage and device specs run under the name of
// the image hostpathplugin: a proxy by which a driver inside the suite's own process has its
// socket on a node.
//
//	hostpathplugin --endpoint=unix:///csi/csi.sock --proxy-endpoint=tcp://:9000
//
//	kubelet --connects--> endpoint --|
//	                                 |-- joined, one to one
//	the suite --dials, beforehand--> proxy-endpoint
//
// Both sides dial; each connection of one side waits for one of the other.
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
	endpoint := flag.String("endpoint", "unix:///csi/csi.sock", "where the node's programs connect to the driver")
	proxied := flag.String("proxy-endpoint", "", "where the driver's process connects")
	flag.Int("v", 0, "not used: all is logged")
	flag.String("nodeid", "", "not used: the driver says that itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *endpoint, *proxied); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, endpoint, proxied string) error {
	if proxied == "" {
		return errors.New("--proxy-endpoint is missing: there is no driver but the suite's")
	}
	in, err := listen(endpoint)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := listen(proxied)
	if err != nil {
		return err
	}
	defer out.Close()
	log.Printf("from %s to whoever connects to %s", endpoint, proxied)
	return proxy(ctx, in, out)
}

// listen takes tcp://HOST:PORT, unix://PATH, or a path.
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
