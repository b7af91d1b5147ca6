package link

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"golang.org/x/sync/errgroup"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/history"
	"github.com/islet-edge/islet/edge/node"
	"github.com/islet-edge/islet/edge/twin"
	"github.com/islet-edge/islet/internal/keys"
)

// A site is an API server and the machines that use the node name n.
type site struct {
	*testing.T
	*apitest.Server
	kubeconfig string
	boots      int
}

func inSite(t *testing.T, test func(s *site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &site{T: t, Server: apitest.New(t), kubeconfig: t.TempDir() + "/kubelet.conf"}
		c := api.NewConfig()
		c.Clusters["c"] = &api.Cluster{Server: "http://127.0.0.1:1"}
		c.AuthInfos["u"] = &api.AuthInfo{Token: "t"}
		c.Contexts["x"] = &api.Context{Cluster: "c", AuthInfo: "u"}
		c.CurrentContext = "x"
		text, err := clientcmd.Write(*c)
		if err == nil {
			err = os.WriteFile(s.kubeconfig, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		test(s)
	})
}

// A board is a machine with its memory card.
type board struct {
	*site
	card          *memory
	hardware      sync.Mutex
	serials, macs []string
	clock         time.Duration // offset of the machine's clock from the next start on
	twinless      bool          // whether this version of islet lacks the twin detection
	boot          string
	link          *Link
	twin          *twin.Twin
	asked         uint64 // number of requests of earlier agent processes
	end           func()
}

func (s *site) board(serial string) *board {
	b := &board{site: s, card: &memory{values: map[string]string{}}}
	if serial != "" {
		b.serials = []string{serial}
	}
	return b
}

// clone returns another machine. Its memory card is a copy of this machine's card.
func (b *board) clone(serial string) *board {
	c := b.site.board(serial)
	b.card.mu.Lock()
	defer b.card.mu.Unlock()
	c.card.values = maps.Clone(b.card.values)
	return c
}

func (b *board) marks() (serials, macs []string) {
	b.hardware.Lock()
	defer b.hardware.Unlock()
	return b.serials, b.macs
}

// cards replaces the machine's network cards.
func (b *board) cards(macs ...string) {
	b.hardware.Lock()
	defer b.hardware.Unlock()
	b.macs = macs
}

// on boots the machine.
func (b *board) on() *board {
	b.Helper()
	b.boots++
	b.boot = fmt.Sprint("boot ", b.boots)
	b.start()
	return b
}

// start starts the agent.
func (b *board) start() {
	b.Helper()
	log := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(b.Context())
	var err error
	cfg := Config{Kubeconfig: b.kubeconfig, CertDir: b.TempDir(), NodeName: "n", Meta: b.card, Dial: b.Dial, Log: log}
	b.twin, err = twin.New(ctx, twin.Config{Node: "n", Boot: b.boot, Marks: b.marks, Meta: b.card, Renew: 40 * time.Second, Log: log})
	if err != nil {
		b.Fatal(err)
	}
	if !b.twinless {
		cfg.Duplicates = b.twin
	}
	if b.link, err = New(ctx, cfg); err != nil {
		b.Fatal(err)
	}
	b.link.files.dirs = nil // inotify does not work in the bubble
	clock := b.clock
	now := func() time.Time { return time.Now().Add(clock) }
	h, err := history.New(ctx, history.Config{Client: b.link.Client(), Node: "n", Meta: b.card, Log: log})
	if err != nil {
		b.Fatal(err)
	}
	boot := b.boot
	nc := node.Config{
		Client: b.link.Client(), Name: "n", Meta: b.card, Register: true, StatusEvery: 10 * time.Second,
		ReportEvery: 5 * time.Minute, LeaseFor: 40 * time.Second, History: h,
		Facts: func(context.Context) (node.Facts, error) {
			return node.Facts{Info: corev1.NodeSystemInfo{BootID: boot}}, nil
		},
		OwnConditions: []corev1.NodeConditionType{keys.DuplicateCondition}, Retry: b.link.Changed(), Now: now, Log: log,
	}
	if !b.twinless {
		nc.Duplicates = b.twin
	}
	no, err := node.New(ctx, nc)
	if err != nil {
		b.Fatal(err)
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{b.link.Run, no.Run, h.Run} {
		g.Go(func() error { return run(ctx) })
	}
	l, changed := b.link, b.twin.Changed()
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
				l.RequestProbe()
				no.Poke()
			}
		}
	})
	b.end = func() {
		cancel()
		if err := g.Wait(); err != nil {
			b.Error(err)
		}
		l.client.CloseConnections()
		b.asked = b.requests()
	}
	b.Cleanup(func() { b.off() })
}

// off ends the agent. The test may then start the next agent in the same boot or in the next one.
func (b *board) off() {
	if b.end != nil {
		b.end()
	}
	b.end = nil
}

func (b *board) reboot()  { b.off(); b.on() }
func (b *board) restart() { b.off(); b.start() }

// requests returns the number of requests that the machine has sent. Probes do not count.
func (b *board) requests() (n uint64) {
	n = b.asked
	for _, k := range b.link.Client().Requests() {
		n += k
	}
	return n
}

// stays lets the given time pass. Then it checks that this machine uses the node name. The parameter another is whether the machine must
// report another machine with the same name.
func (b *board) stays(long time.Duration, another bool) {
	b.Helper()
	time.Sleep(long)
	if s := b.link.State(); s.Phase != Up {
		b.Fatalf("the machine that has the name is %s %s %s", s.Phase, s.Reason, s.Message)
	}
	if why := b.twin.HoldReason(); why != "" {
		b.Errorf("the machine that has the name holds pods: %s", why)
	}
	if got := b.twin.Report() != ""; got != another {
		b.Errorf("another machine is reported: %v (%q)", got, b.twin.Report())
	}
	n := b.Node("n")
	if n == nil || n.Status.NodeInfo.BootID != b.boot {
		b.Fatalf("the Node is not of the machine that has the name: %v", n)
	}
	shown := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == keys.DuplicateCondition })
	if shown != another {
		b.Errorf("the Node has the condition: %v", shown)
	}
	if r := b.Lease("kube-node-lease", "n"); r.Spec.RenewTime.Sub(time.Now().Add(b.clock)).Abs() > 30*time.Second {
		b.Errorf("the Lease was renewed at %s, at %s by the clock of its holder", r.Spec.RenewTime, time.Now().Add(b.clock))
	} else if *r.Spec.HolderIdentity != "n" {
		b.Error("the Lease has another holder than a kubelet writes:", *r.Spec.HolderIdentity)
	}
}

// back checks that the machine no longer uses the node name. The parameter held is whether the machine must hold pods with shared volumes.
func (b *board) back(held bool) {
	b.Helper()
	if s := b.link.State(); s.Phase != Down || s.Reason != ReasonDuplicate || s.Message == "" {
		b.Fatalf("the other machine is %s %s %s", s.Phase, s.Reason, s.Message)
	}
	if got := b.twin.HoldReason() != ""; got != held {
		b.Errorf("it holds pods with shared volumes: %v", got)
	}
}
