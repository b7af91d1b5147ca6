package history

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/edge/apitest"
)

// A disk is a store that counts its writes. A test can stop it.
type disk struct {
	mu      sync.Mutex
	values  map[string]string
	writes  int
	stalled chan struct{} // a write waits until the channel is closed; nil if the disk answers
}

func (d *disk) Meta(_ context.Context, key string) (string, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v, ok := d.values[key]
	return v, ok, nil
}

func (d *disk) SetMeta(_ context.Context, key, value string) error {
	d.mu.Lock()
	stalled := d.stalled
	d.mu.Unlock()
	if stalled != nil {
		<-stalled
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.values[key] = value
	d.writes++
	return nil
}

// A scene is a node that renews its lease.
type scene struct {
	*testing.T
	*apitest.Server
	*History
	disk *disk
	end  func() // ends Run
}

func in(t *testing.T, test func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t, Server: apitest.New(t), disk: &disk{values: map[string]string{}}, end: func() {}}
		s.restart()
		defer func() { s.end() }()
		s.renew()
		test(s)
	})
}

// restart kills the agent and starts it again.
func (s *scene) restart() {
	s.Helper()
	synctest.Wait()
	s.disk.mu.Lock()
	kept := &disk{values: maps.Clone(s.disk.values), writes: s.disk.writes}
	s.disk.mu.Unlock()
	s.end()
	s.disk = kept
	var err error
	s.History, err = New(s.Context(), Config{Client: s.Client(s.T), Node: "n", Meta: s.disk, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended, h := make(chan error, 1), s.History
	go func() { ended <- h.Run(ctx) }()
	s.end = func() {
		cancel()
		if err := <-ended; err != nil {
			s.Error(err)
		}
	}
}

// renew renews the lease as package node does.
func (s *scene) renew() {
	s.Helper()
	if err := s.VerifyServer(s.Context()); err != nil {
		s.Error(err)
	}
	s.patch()
	time.Sleep(10 * time.Second) // in the bubble
}

// patch is a renewal after VerifyServer.
func (s *scene) patch() {
	now := metav1.NewMicroTime(time.Now())
	s.Put(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1.NamespaceNodeLease, Name: "n"},
		Spec: coordinationv1.LeaseSpec{RenewTime: &now}})
	s.RecordRenewal(s.Lease(v1.NamespaceNodeLease, "n").ResourceVersion, now.Time)
}

func (s *scene) want(epoch int, heard bool, c <-chan struct{}) {
	s.Helper()
	got := false
	select {
	case <-c:
		got = true
	default:
	}
	if s.Epoch() != epoch || got != heard {
		s.Errorf("epoch %d, signal %v; want %d, %v", s.Epoch(), got, epoch, heard)
	}
}

func TestRewritten(t *testing.T) {
	type step = func(s *scene, backup *apitest.Snapshot)
	for name, c := range map[string]struct {
		happens step
		epoch   int
	}{
		"nothing":             {func(s *scene, _ *apitest.Snapshot) { s.SuspectServer(); s.renew() }, 0},
		"a restart":           {func(s *scene, _ *apitest.Snapshot) { s.restart(); s.renew() }, 0},
		"restored":            {func(s *scene, b *apitest.Snapshot) { s.Restore(b, 0); s.SuspectServer(); s.renew() }, 1},
		"restored, unnoticed": {func(s *scene, b *apitest.Snapshot) { s.Restore(b, 0); s.renew() }, 1},
		"restored, overtaken": {func(s *scene, b *apitest.Snapshot) { s.Restore(b, 1000); s.SuspectServer(); s.renew() }, 1},
		"the lease removed": {func(s *scene, _ *apitest.Snapshot) {
			s.Remove(s.Lease(v1.NamespaceNodeLease, "n"))
			s.SuspectServer()
			s.renew()
		}, 1},
		"restored, restarted": {func(s *scene, b *apitest.Snapshot) { s.Restore(b, 0); s.restart(); s.renew() }, 1},
		"an older list": {func(s *scene, _ *apitest.Snapshot) {
			if !s.CompareLists("100", "99") || s.CompareLists("100", "100") || s.CompareLists("", "1") {
				s.Error("lists are compared wrongly")
			}
		}, 1},
		"an answer that was lost, with an earlier clock": {func(s *scene, _ *apitest.Snapshot) {
			at := metav1.NewMicroTime(time.Now().Add(-48 * time.Hour))
			l := s.Lease(v1.NamespaceNodeLease, "n")
			l.Spec.RenewTime = &at
			s.Put(l)
			s.SuspectServer()
			s.renew()
		}, 0},
		"an answer that was lost": {func(s *scene, _ *apitest.Snapshot) {
			at := metav1.NewMicroTime(time.Now())
			l := s.Lease(v1.NamespaceNodeLease, "n")
			l.Spec.RenewTime = &at
			s.Put(l)
			s.SuspectServer()
			s.renew()
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(s *scene) {
				backup := s.Snapshot()
				for range 70 { // enough renewals for a marker newer than the backup
					s.renew()
				}
				heard := s.WatchEpoch()
				before := s.History
				c.happens(s, backup)
				s.want(c.epoch, c.epoch > 0 && before == s.History, heard)
				s.renew()
				s.SuspectServer()
				s.renew()
				s.want(c.epoch, false, s.WatchEpoch())
				s.restart()
				s.renew()
				s.want(c.epoch, false, s.WatchEpoch())
			})
		})
	}
}

// TestRenewedMeanwhile renews the Lease while another goroutine reads it. The content that was read is then older than the last renewal,
// although the server has lost nothing.
func TestRenewedMeanwhile(t *testing.T) {
	in(t, func(s *scene) {
		heard := s.WatchEpoch()
		old, err := json.Marshal(s.Lease(v1.NamespaceNodeLease, "n"))
		if err != nil {
			t.Fatal(err)
		}
		reads := 0
		fault := func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/leases/n") {
				return false
			}
			reads++
			s.patch()
			w.Header().Set("Content-Type", "application/json")
			if _, err := w.Write(old); err != nil {
				t.Error(err)
			}
			return true
		}
		s.Fault.Store(&fault)
		s.SuspectServer()
		if err := s.VerifyServer(s.Context()); err != nil || reads != 1 {
			t.Errorf("%d reads: %v", reads, err)
		}
		s.want(0, false, heard)
	})
}

// TestFewWrites checks that most renewals of the lease do not write to the disk.
func TestFewWrites(t *testing.T) {
	in(t, func(s *scene) {
		for range 6 * 60 {
			s.renew()
		}
		synctest.Wait()
		s.disk.mu.Lock()
		defer s.disk.mu.Unlock()
		if s.disk.writes > 8 {
			t.Errorf("%d writes in an hour", s.disk.writes)
		}
		if n := s.Requests("GET leases"); n != 0 {
			t.Errorf("the lease was read %d times without a call of Doubt", n)
		}
		if _, err := strconv.Atoi(s.Lease(v1.NamespaceNodeLease, "n").ResourceVersion); err != nil {
			t.Error(err)
		}
	})
}

// TestStalledDisk checks that renewals do not wait for the disk, also if one of them begins a new epoch. When the disk answers again, the
// marker is stored.
func TestStalledDisk(t *testing.T) {
	in(t, func(s *scene) {
		synctest.Wait()
		backup, stalled := s.Snapshot(), make(chan struct{})
		s.disk.mu.Lock()
		s.disk.stalled = stalled
		s.disk.mu.Unlock()
		began := time.Now()
		for range 2 * int(storeEvery/(10*time.Second)) {
			s.renew()
		}
		s.Restore(backup, 0)
		heard := s.WatchEpoch()
		s.renew()
		s.want(1, true, heard)
		s.Remove(s.Lease(v1.NamespaceNodeLease, "n"))
		s.RecordMissingLease()
		s.want(2, true, heard)
		if took := time.Since(began); took != 2*storeEvery+10*time.Second {
			t.Errorf("the renewals took %v", took)
		}
		close(stalled)
		s.renew()
		s.restart()
		s.renew()
		s.want(2, false, s.WatchEpoch())
	})
}

// TestUnsettled checks that Settle returns an error while the server does not respond. After the outage, a restored server must be
// detected.
func TestUnsettled(t *testing.T) {
	in(t, func(s *scene) {
		backup := s.Snapshot()
		s.renew()
		s.Restore(backup, 1000)
		s.SuspectServer()
		s.Disconnect()
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		if err := s.VerifyServer(ctx); err == nil {
			t.Error("settled without an answer")
		}
		s.Reconnect()
		s.renew()
		if s.Epoch() != 1 {
			t.Error("a restored server was not noticed after an outage")
		}
	})
}
