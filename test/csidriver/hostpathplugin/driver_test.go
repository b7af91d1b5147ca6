package main

import (
	"os"
	"path/filepath"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestDriver checks the requests for volumes. A volume must be created once, attached up to the limit, staged only while it is attached,
// and deleted with its data. No ID may lead out of the state directory.
func TestDriver(t *testing.T) {
	d := &driver{config: config{node: "n", state: t.TempDir(), attach: true, attachLimit: 1}, volumes: map[string]*volume{}}
	ctx := t.Context()
	create := func(name string, size int64) string {
		t.Helper()
		r := &spec.CreateVolumeRequest{Name: name, CapacityRange: &spec.CapacityRange{RequiredBytes: size}, VolumeCapabilities: []*spec.VolumeCapability{{}}}
		out, err := d.CreateVolume(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return out.Volume.VolumeId
	}
	wants := func(what string, err error, code codes.Code) {
		t.Helper()
		if status.Code(err) != code {
			t.Errorf("%s: %v, not %s", what, err, code)
		}
	}
	a, b := create("a", 10), create("b", 10)
	if create("a", 5) != a || a == b {
		t.Errorf("%s and %s", a, b)
	}
	_, err := d.CreateVolume(ctx, &spec.CreateVolumeRequest{Name: "a", CapacityRange: &spec.CapacityRange{RequiredBytes: 11}, VolumeCapabilities: []*spec.VolumeCapability{{}}})
	wants("larger", err, codes.AlreadyExists)
	_, err = d.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{VolumeId: a})
	wants("stage before it is attached", err, codes.FailedPrecondition)
	attach := func(id, node string) error {
		_, err := d.ControllerPublishVolume(ctx, &spec.ControllerPublishVolumeRequest{VolumeId: id, NodeId: node})
		return err
	}
	wants("another node", attach(a, "m"), codes.NotFound)
	wants("attach", attach(a, "n"), codes.OK)
	wants("attach again", attach(a, "n"), codes.OK)
	wants("one too many", attach(b, "n"), codes.ResourceExhausted)
	_, err = d.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{VolumeId: a})
	wants("stage", err, codes.OK)
	if _, err := d.ControllerUnpublishVolume(ctx, &spec.ControllerUnpublishVolumeRequest{VolumeId: a}); err != nil {
		t.Error(err)
	}
	wants("attach the other", attach(b, "n"), codes.OK)
	if err := os.WriteFile(filepath.Join(d.state, a, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"..", "a/b", ""} {
		_, err = d.DeleteVolume(ctx, &spec.DeleteVolumeRequest{VolumeId: id})
		wants("delete "+id, err, codes.InvalidArgument)
	}
	for range 2 {
		if _, err := d.DeleteVolume(ctx, &spec.DeleteVolumeRequest{VolumeId: a}); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(d.state); err != nil || len(left) != 1 || left[0].Name() != b {
		t.Errorf("left: %v, %v", left, err)
	}
}
