package storage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestStateMachine starts and ends pods at random. Meanwhile the driver of their volumes fails, hangs and panics, the agent dies, and the
// machine reboots. Every mounted volume must always be in the ledger. A volume must have only one call at a time, and the volume of a
// running pod must not be unmounted. In the end, nothing may be left.
func TestStateMachine(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			root := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t, root)
				defer s.Close()
				m := &machine{T: t, root: root, rand: rand.New(rand.NewPCG(seed, 7)), objects: &objects{}}
				m.kernel = &kernel{TB: t, ledger: s, mounted: map[string]string{}, busy: map[string]bool{}, running: map[string]bool{}, chance: rand.New(rand.NewPCG(seed, 8)), faults: 12}
				for i := range 4 {
					_, pv := m.objects.bound(fmt.Sprint("c", i), v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: fmt.Sprint("h", i)}})
					if i == 3 {
						pv.Spec.CSI.FSType = "unstaged"
					}
				}
				m.start()
				for range 150 {
					m.step()
				}
				m.finish()
			})
		})
	}
}

type machine struct {
	*testing.T
	root    string
	rand    *rand.Rand
	objects *objects
	kernel  *kernel
	life    *life
	mounter *Mounter
}

func (m *machine) start() {
	ctx, end := context.WithCancel(context.Background())
	m.life = &life{kernel: m.kernel, end: end}
	if m.kernel.faults > 0 {
		m.life.until = 1 + m.rand.IntN(120)
	}
	m.kernel.mu.Lock()
	clear(m.kernel.busy)
	m.kernel.mu.Unlock()
	k, err := New(ctx, Config{Root: m.root, Drivers: []Driver{m.life}, Ledger: m.life, Objects: m.objects, Claim: ephemeral})
	if err != nil {
		m.Fatal(err)
	}
	k.setGroup = m.life.setGroup
	m.mounter = k
}

// This helper reports whether the agent has died.
func (m *machine) dead() bool {
	m.kernel.mu.Lock()
	defer m.kernel.mu.Unlock()
	return m.life.over
}

// kill ends the agent and all its unfinished calls.
func (m *machine) kill(reboot bool) {
	m.kernel.mu.Lock()
	m.life.over = true
	m.life.gone = reboot
	if reboot {
		clear(m.kernel.mounted)
		clear(m.kernel.running)
	}
	m.kernel.mu.Unlock()
	m.life.end()
	time.Sleep(time.Hour) // hanging calls end
	m.start()
}

func (m *machine) pod(i int) *v1.Pod {
	p := podWith(fmt.Sprint("p", i), fmt.Sprint("c", i%4), fmt.Sprint("c", (i+1)%4))
	if i%3 > 0 {
		gid := int64(i)
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
	}
	return p
}

func (m *machine) step() {
	p := m.pod(m.rand.IntN(6))
	ctx, stop := context.WithTimeout(context.Background(), time.Duration(1+m.rand.IntN(300))*time.Second)
	defer stop()
	switch n := m.rand.IntN(20); {
	case n < 9:
		m.setUp(ctx, p)
	case n < 15:
		m.tearDown(ctx, p.UID)
	case n < 17: // both operations run at the same time for different pods
		q := m.pod(m.rand.IntN(6))
		done := make(chan struct{})
		go func() {
			defer close(done)
			if q.UID != p.UID {
				m.setUp(ctx, q)
			}
		}()
		m.tearDown(ctx, p.UID)
		<-done
	case n == 17:
		m.kill(false)
	case n == 18:
		m.kill(true)
	default:
		_ = m.mounter.Sweep(ctx)
	}
	if m.dead() {
		m.kill(false)
	}
}

// setUp mounts the volumes of a pod. A worker does the same before it starts containers.
func (m *machine) setUp(ctx context.Context, p *v1.Pod) {
	life := m.life
	for i := range p.Spec.Volumes {
		path, err := m.mounter.SetUp(ctx, p, &p.Spec.Volumes[i], "")
		if err != nil {
			return // the worker retries or gives up
		}
		m.kernel.mu.Lock()
		if m.kernel.mounted[path] == "" {
			m.Errorf("%s is not mounted", path)
		}
		m.kernel.mu.Unlock()
	}
	m.kernel.mu.Lock()
	defer m.kernel.mu.Unlock()
	if !life.over {
		m.kernel.running[string(p.UID)] = true
	}
}

// tearDown unmounts the volumes of a pod. A worker does the same when no container runs.
func (m *machine) tearDown(ctx context.Context, uid types.UID) {
	m.kernel.mu.Lock()
	delete(m.kernel.running, string(uid))
	m.kernel.mu.Unlock()
	if m.mounter.TearDown(ctx, uid) == nil && m.mounter.HasPod(uid) {
		m.Errorf("%s has volumes after it was torn down", uid)
	}
}

func (m *machine) finish() {
	m.kernel.mu.Lock()
	m.kernel.faults = 0
	m.kernel.mu.Unlock()
	m.kill(false)
	for _, uid := range m.mounter.Pods() {
		m.tearDown(context.Background(), uid)
	}
	if err := m.mounter.Sweep(context.Background()); err != nil {
		m.Error(err)
	}
	m.life.end()
	rows, err := m.kernel.ledger.Volumes(context.Background())
	if err != nil || len(rows) != 0 || len(m.kernel.mounted) != 0 || len(m.mounter.InUse()) != 0 {
		m.Errorf("left in the ledger: %v, mounted: %v, in use: %q, error: %v", rows, m.kernel.mounted, m.mounter.InUse(), err)
	}
}
