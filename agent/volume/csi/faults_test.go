package csi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/islet-edge/islet/agent/plugin/plugins"
)

// TestFaults checks that each fault of a driver is either corrected or returned as an error that describes it. The mount can be undone
// afterwards.
func TestFaults(t *testing.T) {
	lie := func(context.Context) error { return errLie }
	for name, c := range map[string]struct {
		method string
		how    func(context.Context) error
		want   string // error of the mount
	}{
		"refuses to stage": {
			"stage",
			func(context.Context) error { return status.Error(codes.InvalidArgument, "no such disk") },
			"no such disk",
		},
		"refuses to publish": {"publish", func(context.Context) error { return status.Error(codes.ResourceExhausted, "full") }, "full"},
		"publishes nothing":  {"publish", lie, "the volume is not mounted"},
		"publishes a link":   {"publish", lie, "did not publish a directory"},
		"unpublishes not":    {"unpublish", lie, ""},
		"unstages not":       {"unstage", lie, ""},
		"panics":             {"publish", func(context.Context) error { return errors.New("boom") }, "boom"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.register()
			w.fails(c.method, c.how)
			v := volume()
			u := w.use(v, podNamed("a"))
			if name == "publishes a link" {
				w.fails(c.method, func(context.Context) error { return errors.Join(os.Symlink(w.data, u.Path), errLie) })
			}
			if err := w.mount(v, u); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("mounted: %v", err)
			}
			w.undo(v, u)
		})
	}
}

// TestUnstageFailsLate checks that the driver is called until it has unstaged a volume, although it has removed the directory of the volume
// in a call that then failed or hung.
func TestUnstageFailsLate(t *testing.T) {
	for _, block := range []bool{false, true} {
		w := newWorld(t)
		w.register()
		v := volume()
		v.Block = block
		path := w.StagePath(v)
		requireNoError(t, w.Stage(t.Context(), v, path, w.use(v, podNamed("a"))))
		for range 2 {
			w.fails("after unstage", func(context.Context) error { return status.Error(codes.Internal, "the disk is busy") })
			if err := w.Unstage(t.Context(), v, path); status.Code(err) != codes.Internal {
				t.Errorf("block %v: %v", block, err)
			}
			ctx, stop := context.WithCancel(t.Context())
			w.fails("after unstage", func(called context.Context) error {
				stop()
				<-called.Done()
				return called.Err()
			})
			if err := w.Unstage(ctx, v, path); status.Code(err) != codes.Canceled {
				t.Errorf("block %v: %v", block, err)
			}
		}
		w.fails("after unstage", nil)
		w.undo(v, w.use(v, podNamed("a")))
	}
}

// TestUnstageOfOldBlockVolume checks that the driver is called until it has unstaged a block volume that an earlier version has staged
// without vol_data.json.
func TestUnstageOfOldBlockVolume(t *testing.T) {
	w := newWorld(t)
	w.register()
	v := volume()
	v.Block = true
	path := w.StagePath(v)
	requireNoError(t, w.Stage(t.Context(), v, path, w.use(v, podNamed("a"))))
	requireNoError(t, w.removeDeviceData(v))
	w.fails("after unstage", func(context.Context) error { return status.Error(codes.Internal, "the disk is busy") })
	for range 2 {
		if err := w.Unstage(t.Context(), v, path); status.Code(err) != codes.Internal {
			t.Error(err)
		}
	}
	w.fails("after unstage", nil)
	w.undo(v, w.use(v, podNamed("a")))
}

// TestUnstageWithLeftovers checks that other files in the directories of a block volume do not keep the volume in use after the driver has
// unstaged it.
func TestUnstageWithLeftovers(t *testing.T) {
	w := newWorld(t)
	w.register()
	v := volume()
	v.Block = true
	path := w.StagePath(v)
	requireNoError(t, w.Stage(t.Context(), v, path, w.use(v, podNamed("a"))))
	for _, dir := range []string{w.pluginPath("volumeDevices", "publish", v.Name, "other"), w.pluginPath("volumeDevices", v.Name, "dev")} {
		requireNoError(t, os.MkdirAll(dir, dirMode))
	}
	requireNoError(t, w.Unstage(t.Context(), v, path))
	w.checkUnstaged()
	if w.mayBeStaged(v, path) {
		t.Error("the driver is called again")
	}
}

// TestSaveSameData checks that vol_data.json is only written if its content changes, because a full disk would damage it.
func TestSaveSameData(t *testing.T) {
	w, v := newWorld(t), volume()
	name := filepath.Join(w.root, dataFile)
	isOld := func() bool {
		requireNoError(t, w.saveData(w.root, v, ""))
		fi, err := os.Stat(name)
		requireNoError(t, err)
		return fi.ModTime().Equal(time.Unix(1, 0))
	}
	if isOld() {
		t.Error("not written")
	}
	requireNoError(t, os.Chtimes(name, time.Time{}, time.Unix(1, 0)))
	if !isOld() {
		t.Error("written again with the same content")
	}
	v.Label = "system_u:object_r:container_file_t:s0:c1,c2"
	if isOld() {
		t.Error("the label was not written")
	}
}

// TestHang checks that a call of a driver ends with the call's context. The driver can then be called again.
func TestHang(t *testing.T) {
	w := newWorld(t)
	w.register()
	v := volume()
	u := w.use(v, podNamed("a"))
	ctx, stop := context.WithCancel(t.Context())
	w.fails("publish", func(called context.Context) error {
		stop()
		<-called.Done()
		return called.Err()
	})
	requireNoError(t, w.Stage(ctx, v, w.StagePath(v), u))
	if err := w.Publish(ctx, v, w.StagePath(v), u); status.Code(err) != codes.Canceled {
		t.Errorf("published: %v", err)
	}
	w.fails("publish", nil)
	requireNoError(t, w.mount(v, u))
	w.undo(v, u)
}

// TestDies checks a driver that dies during a call and starts again at the same socket. The volume can then be mounted.
func TestDies(t *testing.T) {
	w := newWorld(t)
	w.register()
	v := volume()
	u := w.use(v, podNamed("a"))
	server := w.server
	w.fails("stage", func(context.Context) error {
		go server.Stop()
		select {}
	})
	if err := w.mount(v, u); status.Code(err) != codes.Unavailable {
		t.Errorf("mounted: %v", err)
	}
	os.Remove(w.socket)
	w.faulty = nil
	w.serve()
	for { // the loop ends when the connection is restored
		if err := w.mount(v, u); err == nil {
			break
		} else if status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
	}
	w.undo(v, u)
}

// TestNotRegistered checks that the mount of a volume fails while its driver is not registered. It succeeds after the driver was registered
// or replaced. The same applies to an unmount.
func TestNotRegistered(t *testing.T) {
	w := newWorld(t)
	v := volume()
	u := w.use(v, podNamed("a"))
	for range 2 {
		if err := w.mount(v, u); err == nil || !strings.Contains(err.Error(),
			"driver name "+driverName+" not found in the list of registered CSI drivers") {
			t.Errorf("mounted: %v", err)
		}
	}
	w.undo(v, u) // no driver is needed, because none was called
	if err := w.mount(v, u); err == nil {
		t.Error("mounted")
	}
	w.register()
	if uid := <-w.retried; uid != "uid-of-a" {
		t.Errorf("%s is tried again", uid)
	}
	requireNoError(t, w.mount(v, u))
	w.register() // the driver restarts at the same socket
	second := w.plugin()
	second.Socket = "another"
	if err := w.Validate(second); err == nil || !strings.Contains(err.Error(), "already registered") {
		t.Errorf("the same version at another socket: %v", err)
	}
	second.Versions = []string{"1.1.0"}
	requireNoError(t, w.Register(t.Context(), second))
	w.Deregister(w.plugin()) // this ends the earlier registration
	w.undo(v, u)
	if len(w.retried) > 0 {
		t.Errorf("%s is tried again", <-w.retried)
	}
	requireNoError(t, w.mount(v, u))
	w.Deregister(second)
	if err := w.Unpublish(t.Context(), v, u.Pod.UID, u.Path); err == nil {
		t.Error("unpublished without the driver")
	}
	for w.registered.Store(false); len(w.installed) > 0; {
		<-w.installed
	}
	w.register()
	if uid := <-w.retried; uid != "uid-of-a" || !w.registered.Load() {
		t.Errorf("%s is tried again, volumes that no pod uses are: %v", uid, w.registered.Load())
	}
	w.undo(v, u)
}

func TestRegisterRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		plugin func(*plugins.Plugin)
		info   *spec.NodeGetInfoResponse
	}{
		"a path":         {plugin: func(p *plugins.Plugin) { p.Name = "../x" }},
		"a long name":    {plugin: func(p *plugins.Plugin) { p.Name = strings.Repeat("a", 64) }},
		"version":        {plugin: func(p *plugins.Plugin) { p.Versions = []string{"2.0.0", "0.3"} }},
		"no node ID":     {info: &spec.NodeGetInfoResponse{}},
		"a long node ID": {info: &spec.NodeGetInfoResponse{NodeId: strings.Repeat("x", 193)}},
		"a label's key": {
			info: &spec.NodeGetInfoResponse{NodeId: "x", AccessibleTopology: &spec.Topology{Segments: map[string]string{"a b": "c"}}},
		},
		"a label's value": {
			info: &spec.NodeGetInfoResponse{NodeId: "x", AccessibleTopology: &spec.Topology{Segments: map[string]string{"a": "b\n"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.plugin()
			if c.plugin != nil {
				c.plugin(&p)
			}
			if c.info != nil {
				w.info = c.info
			}
			if err := w.Register(t.Context(), p); err == nil || len(w.installed) > 0 {
				t.Errorf("registered: %v", err)
			}
		})
	}
}
