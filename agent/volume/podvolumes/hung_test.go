package podvolumes

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A servedKind is a Kind whose volumes need a server, such as NFS. A call to an unreachable server hangs until the volume is unmounted.
type servedKind struct {
	dir       string
	unmounted chan struct{}
}

func (*servedKind) Plugin() string             { return "test/served" }
func (*servedKind) Serves(vol *v1.Volume) bool { return vol.NFS != nil }
func (s *servedKind) HasPod(types.UID) bool {
	select {
	case <-s.unmounted:
		return false
	default:
		return true
	}
}
func (s *servedKind) Pods() []types.UID           { return nil }
func (s *servedKind) Sweep(context.Context) error { return nil }
func (s *servedKind) SetUp(context.Context, *v1.Pod, *v1.Volume, string) (string, error) {
	return s.dir, nil
}

func (s *servedKind) MountPath(*v1.Pod, *v1.Volume) (path string, readOnly, relabel bool, err error) {
	return s.dir, false, false, nil
}

func (s *servedKind) TearDown(context.Context, types.UID) error {
	close(s.unmounted)
	return nil
}

// TestSubPathThatHangs checks that the mount of a subPath times out if the volume's server is unreachable. The pod can then be removed at
// once. The hanging call ends when the volume is unmounted. The file that it opens is not mounted.
func TestSubPathThatHangs(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &servedKind{t.TempDir(), make(chan struct{})}
		v, err := New(Config{Root: root, Hostname: func(*v1.Pod) (string, string) { return "h", "" }, Kinds: []Kind{s}})
		if err != nil {
			t.Fatal(err)
		}
		var calls atomic.Int32
		v.openFile = func(*v1.VolumeMount, string) (*subPathFile, error) {
			calls.Add(1)
			<-s.unmounted
			f, err := os.Open(s.dir) // the server may respond now
			return &subPathFile{f, true}, err
		}
		pod := podWith(v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "s", Path: "/"}}})
		for range 3 { // three attempts of the container
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			_, err := mountsWithin(ctx, v, pod, v1.VolumeMount{Name: "data", MountPath: "/d", SubPath: "sub"})
			stop()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the container gets the subPath: %v", err)
			}
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls wait for the server", n)
		}
		began := time.Now()
		if err := v.Release(t.Context(), pod.UID); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the pod was removed after %v", took)
		}
		synctest.Wait()
		requireGone(t, v.podDir(pod.UID))
	})
}
