package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// config contains the settings of the driver from the flags.
type config struct {
	name, node, state string
	attach, topology  bool
	expands           bool  // volumes must also be expanded on the node
	most              int64 // the maximum number of volumes per node that the driver reports; 0 means no limit
	attachLimit       int   // the maximum number of attached volumes, which the driver also reports; 0 means no limit
}

// A driver provides volumes that are directories below its state directory. The driver keeps the
// list of volumes only in memory, so the list is lost when the driver ends.
type driver struct {
	spec.UnimplementedIdentityServer
	spec.UnimplementedControllerServer
	spec.UnimplementedNodeServer
	config

	mu      sync.Mutex
	volumes map[string]*volume // by ID
	next    int
}

type volume struct {
	name      string
	size      int64
	attached  bool
	ephemeral bool
}

// runDriver runs the driver's server until the context ends.
func runDriver(ctx context.Context, c config, l net.Listener) error {
	if err := os.MkdirAll(c.state, 0o755); err != nil {
		return err
	}
	d := &driver{config: c, volumes: map[string]*volume{}}
	s := grpc.NewServer(grpc.UnaryInterceptor(logCall))
	spec.RegisterIdentityServer(s, d)
	spec.RegisterControllerServer(s, d)
	spec.RegisterNodeServer(s, d)
	ended := context.AfterFunc(ctx, s.Stop)
	defer ended()
	log.Printf("driver %s of node %s serves", c.name, c.node)
	if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// logCall logs a call in the format that the specs expect.
func logCall(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	answer, err := next(ctx, req)
	call := struct {
		Method            string
		Request, Response any
		Error             string
		FullError         any
	}{Method: info.FullMethod, Request: req, Response: answer}
	if err != nil {
		call.Error, call.FullError = err.Error(), status.Convert(err).Proto()
	}
	text, failed := json.Marshal(call)
	if failed != nil {
		text = []byte(failed.Error())
	}
	log.Printf("gRPCCall: %s", text)
	return answer, err
}

func (d *driver) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: d.name, VendorVersion: "test"}, nil
}

func (d *driver) Probe(context.Context, *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	return &spec.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *spec.GetPluginCapabilitiesRequest) (*spec.GetPluginCapabilitiesResponse, error) {
	services := []spec.PluginCapability_Service_Type{spec.PluginCapability_Service_CONTROLLER_SERVICE}
	if d.topology {
		services = append(services, spec.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	out := &spec.GetPluginCapabilitiesResponse{}
	for _, s := range services {
		out.Capabilities = append(out.Capabilities,
			&spec.PluginCapability{Type: &spec.PluginCapability_Service_{Service: &spec.PluginCapability_Service{Type: s}}})
	}
	return out, nil
}

// segments returns the topology in which the driver's volumes can be used.
func (d *driver) segments() *spec.Topology {
	if !d.topology {
		return nil
	}
	return &spec.Topology{Segments: map[string]string{"topology.hostpath.csi/node": d.node}}
}

// find returns a volume. The caller holds mu.
func (d *driver) find(id string) (*volume, error) {
	if v := d.volumes[id]; v != nil {
		return v, nil
	}
	return nil, status.Errorf(codes.NotFound, "there is no volume %q", id)
}

// path returns the path of a volume's data. The volume's ID comes from newID, or is a hash for an ephemeral volume.
func (d *driver) path(id string) (string, error) {
	if id == "" || strings.ContainsAny(id, "/\x00") || strings.HasPrefix(id, ".") {
		return "", status.Errorf(codes.InvalidArgument, "%q is not a volume", id)
	}
	return filepath.Join(d.state, id), nil
}

func (d *driver) newID() string {
	d.next++
	return fmt.Sprintf("volume-%d", d.next)
}
