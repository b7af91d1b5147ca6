// Command registrar registers a CSI driver with the kubelet, like node-driver-registrar. It creates
// a socket in /registration at which the kubelet reads the driver's name and socket. It has the
// flags that Kubernetes' storage specs use.
//
//	registrar --csi-address=/csi/csi.sock --kubelet-registration-path=/var/lib/kubelet/plugins/NAME/csi.sock
//
// https://github.com/kubernetes-csi/node-driver-registrar
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func main() {
	address := flag.String("csi-address", "/run/csi/socket", "path of the driver's socket for this program")
	path := flag.String("kubelet-registration-path", "", "path of the driver's socket for the kubelet")
	dir := flag.String("plugin-registration-path", "/registration", "directory of the registration socket")
	endpoint := flag.String("http-endpoint", "", "TCP address of /healthz; empty: none")
	timeout := flag.Duration("timeout", time.Second, "timeout of a call to the driver")
	flag.Int("v", 0, "ignored; everything is logged")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if *endpoint != "" {
		go func() { log.Fatal(http.ListenAndServe(*endpoint, health{*dir})) }()
	}
	if err := run(ctx, *address, *path, *dir, *timeout); err != nil {
		log.Fatal(err)
	}
}

// A health serves /healthz. The registrar is healthy while a registration socket exists in dir.
type health struct{ dir string }

func (h health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sockets, _ := filepath.Glob(filepath.Join(h.dir, "*-reg.sock"))
	switch {
	case r.URL.Path != "/healthz":
		http.NotFound(w, r)
	case len(sockets) == 0:
		http.Error(w, "no registration socket", http.StatusInternalServerError)
	default:
		io.WriteString(w, "ok")
	}
}

func run(ctx context.Context, address, path, dir string, timeout time.Duration) error {
	name, err := driverName(ctx, address, timeout)
	if err != nil || ctx.Err() != nil {
		return err
	}
	socket := filepath.Join(dir, name+"-reg.sock")
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	s, failed := grpc.NewServer(), make(chan error, 2)
	registration.RegisterRegistrationServer(s, &server{name: name, path: path, failed: failed})
	go func() { failed <- s.Serve(l) }()
	defer s.Stop() // removes the socket
	log.Printf("driver %s waits for its registration at %s", name, socket)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// driverName calls the driver again and again until the driver returns its name.
func driverName(ctx context.Context, address string, timeout time.Duration) (string, error) {
	conn, err := grpc.NewClient("unix:"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		info, err := ask(ctx, conn, timeout)
		if err == nil {
			return info.GetName(), nil
		}
		log.Print("the driver does not report its name yet: ", err)
		select {
		case <-again.C:
		case <-ctx.Done():
			return "", nil
		}
	}
}

func ask(ctx context.Context, conn *grpc.ClientConn, timeout time.Duration) (*spec.GetPluginInfoResponse, error) {
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	return spec.NewIdentityClient(conn).GetPluginInfo(ctx, &spec.GetPluginInfoRequest{}, grpc.WaitForReady(true))
}

type server struct {
	registration.UnimplementedRegistrationServer
	name, path string
	failed     chan<- error
}

func (s *server) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: s.name, Endpoint: s.path, SupportedVersions: []string{"1.0.0"}}, nil
}

func (s *server) NotifyRegistrationStatus(_ context.Context,
	r *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	log.Printf("registered: %v %s", r.PluginRegistered, r.Error)
	if !r.PluginRegistered { // the container is restarted, and the registrar tries again
		select {
		case s.failed <- fmt.Errorf("registration failed: %s", r.Error):
		default:
		}
	}
	return &registration.RegistrationStatusResponse{}, nil
}
