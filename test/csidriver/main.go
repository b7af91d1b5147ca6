// Command csidriver is a CSI driver for tests. A volume is the directory DATA/HANDLE, or in block
// mode the block device DATA/HANDLE. The driver bind-mounts it at the target path. It registers
// itself, like node-driver-registrar.
//
//	csidriver NAME ROOT-DIR DATA
//
// If you need a CSI driver for other tests, use csi-driver-host-path.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("csidriver NAME ROOT-DIR DATA")
	}
	d := &driver{name: os.Args[1], root: os.Args[2], data: os.Args[3]}
	if err := d.run(); err != nil {
		log.Fatal(err)
	}
}

type driver struct {
	spec.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer
	name, root, data string
}

func (d *driver) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	own := filepath.Join(d.root, "plugins", d.name)
	if err := errors.Join(os.MkdirAll(own, 0o750), os.MkdirAll(d.data, 0o755)); err != nil {
		return err
	}
	s := grpc.NewServer()
	spec.RegisterNodeServer(s, d)
	registration.RegisterRegistrationServer(s, d)
	for _, path := range []string{d.socket(), filepath.Join(d.root, "plugins_registry", d.name+"-reg.sock")} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		l, err := net.Listen("unix", path)
		if err != nil {
			return err
		}
		go s.Serve(l)
	}
	<-ctx.Done()
	s.Stop()
	return nil
}

func (d *driver) socket() string { return filepath.Join(d.root, "plugins", d.name, "csi.sock") }

func (d *driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: d.name, Endpoint: d.socket(),
		SupportedVersions: []string{"1.0.0"}}, nil
}

func (d *driver) NotifyRegistrationStatus(_ context.Context,
	s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	log.Printf("registered: %v %s", s.PluginRegistered, s.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *driver) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	host, err := os.Hostname()
	return &spec.NodeGetInfoResponse{NodeId: host, MaxVolumesPerNode: 100,
		AccessibleTopology: &spec.Topology{Segments: map[string]string{"topology." + d.name + "/node": host}}}, err
}

func (d *driver) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	out := &spec.NodeGetCapabilitiesResponse{}
	for _, c := range []spec.NodeServiceCapability_RPC_Type{spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		spec.NodeServiceCapability_RPC_EXPAND_VOLUME, spec.NodeServiceCapability_RPC_GET_VOLUME_STATS} {
		out.Capabilities = append(out.Capabilities,
			&spec.NodeServiceCapability{Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: c}}})
	}
	return out, nil
}

// bindMount mounts a volume at a path.
func (d *driver) bindMount(handle, to string, block bool) error {
	if strings.ContainsAny(handle, "/\x00") || strings.HasPrefix(handle, ".") {
		return status.Error(codes.InvalidArgument, "not a volume")
	}
	from := filepath.Join(d.data, handle)
	if mounted(to) {
		return nil
	}
	if block {
		f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		f.Close()
	} else if err := errors.Join(os.MkdirAll(from, 0o755), os.MkdirAll(to, 0o750)); err != nil {
		return err
	}
	return unix.Mount(from, to, "", unix.MS_BIND, "")
}

func mounted(path string) bool {
	var st unix.Statx_t
	return unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &st) == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

func unbind(path string) error {
	if mounted(path) {
		if err := unix.Unmount(path, 0); err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	return nil
}

func (d *driver) NodeStageVolume(_ context.Context, r *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	log.Print("stage ", r.VolumeId)
	if r.VolumeCapability.GetBlock() != nil {
		return &spec.NodeStageVolumeResponse{}, nil
	}
	return &spec.NodeStageVolumeResponse{}, d.bindMount(r.VolumeId, r.StagingTargetPath, false)
}

func (d *driver) NodeUnstageVolume(_ context.Context, r *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	log.Print("unstage ", r.VolumeId)
	return &spec.NodeUnstageVolumeResponse{}, unbind(r.StagingTargetPath)
}

func (d *driver) NodePublishVolume(_ context.Context, r *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	log.Print("publish ", r.VolumeId)
	err := d.bindMount(r.VolumeId, r.TargetPath, r.VolumeCapability.GetBlock() != nil)
	if err == nil && r.VolumeContext["csi.storage.k8s.io/ephemeral"] == "true" {
		err = os.WriteFile(filepath.Join(r.TargetPath, "pod"), []byte(r.VolumeContext["csi.storage.k8s.io/pod.name"]), 0o644)
	}
	if tokens := r.VolumeContext["csi.storage.k8s.io/serviceAccount.tokens"]; err == nil && tokens != "" {
		err = d.recordTokens(r.VolumeId, tokens)
	}
	return &spec.NodePublishVolumeResponse{}, err
}

// recordTokens appends the tokens of a published volume to a file next to the volume.
func (d *driver) recordTokens(handle, tokens string) error {
	f, err := os.OpenFile(filepath.Join(d.data, handle+".tokens"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(tokens + "\n")
	return err
}

func (d *driver) NodeUnpublishVolume(_ context.Context, r *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	log.Print("unpublish ", r.VolumeId)
	if err := unbind(r.TargetPath); err != nil {
		return nil, err
	}
	if err := os.Remove(r.TargetPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &spec.NodeUnpublishVolumeResponse{}, nil
}

func (d *driver) NodeExpandVolume(_ context.Context, r *spec.NodeExpandVolumeRequest) (*spec.NodeExpandVolumeResponse, error) {
	log.Print("expand ", r.VolumeId, " to ", r.CapacityRange.GetRequiredBytes())
	return &spec.NodeExpandVolumeResponse{CapacityBytes: r.CapacityRange.GetRequiredBytes()}, nil
}

func (d *driver) NodeGetVolumeStats(context.Context, *spec.NodeGetVolumeStatsRequest) (*spec.NodeGetVolumeStatsResponse, error) {
	return &spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{{Unit: spec.VolumeUsage_BYTES, Total: 100, Used: 1,
		Available: 99}}}, nil
}
