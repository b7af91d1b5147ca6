package machine

import (
	"context"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/spec/translate"
)

// gatherTime is the time between the first sign of a change and the next reading. A new network causes several signs, and a program may
// write a file in several steps.
const gatherTime = 100 * time.Millisecond

// readInterval is the minimum time between two readings. Some network add-ons change a route for each pod.
const readInterval = time.Second

// laterReads are the times after a change of the network at which the files are read again if inotify is not available. A DHCP client
// writes its servers soon after the address.
var laterReads = []time.Duration{2 * time.Second, 10 * time.Second, time.Minute}

// A Follower keeps pods up to date about the machine's network, which may come or change long after they were started. It reads
// the addresses and the resolv.conf again when the kernel reports a change, and it is idle otherwise.
//
//	Uplink.Moved, inotify, Machine.Now --difference--> addresses: Changed, and the store
//	                                             '---> resolv.conf: UpdateDNS
type Follower struct {
	Machine *Machine
	// Moved receives a value when the addresses of the machine may have changed.
	Moved <-chan struct{}
	// Changed is called when the addresses have changed. The statuses of pods must then be computed again, and containers that wait
	// for an address must be retried.
	Changed func()
	// Pod returns a desired pod, or nil.
	Pod func(types.UID) *v1.Pod
	// UpdateDNS passes each running sandbox to a function, and writes the DNS configuration that the function returns. It changes nothing
	// if the function returns nil.
	UpdateDNS func(func(*cri.PodSandboxMetadata) *cri.DNSConfig) error
	Log       *slog.Logger
}

// Run works until ctx ends. It begins with an update of all sandboxes, because the machine may have changed while no agent was running.
func (f *Follower) Run(ctx context.Context) error {
	n := f.Machine
	f.storeAddresses(ctx)
	files := watchFiles(n.resolvFiles)
	defer files.close()
	if files.err != nil {
		f.Log.Warn("cannot watch the resolv.conf; changes are found when the network changes", "error", files.err)
	}
	n.reread() // the files may have changed before the watch
	f.updateDNS()
	due := time.NewTimer(gatherTime)
	due.Stop()
	defer due.Stop()
	var last time.Time // of the last reading
	for later, waits := len(laterReads), false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-f.Moved:
			later = 0
			if files.err == nil {
				later = len(laterReads)
			}
		case e := <-files.events():
			if !files.isRelevant(e) {
				continue
			}
		case <-files.errors(): // events were lost
		case <-due.C:
			waits, last = false, time.Now()
			files.update()
			n.reread()
			if later < len(laterReads) {
				due.Reset(laterReads[later])
				later++
			}
			continue
		case <-n.changed:
			f.handle(ctx, n.takeChanges())
			continue
		}
		if !waits {
			waits = true
			due.Reset(max(gatherTime, readInterval-time.Since(last)))
		}
	}
}

func (f *Follower) handle(ctx context.Context, c changes) {
	if c.addresses {
		f.storeAddresses(ctx)
		f.Changed()
	}
	if c.dns {
		f.updateDNS()
	}
}

func (f *Follower) storeAddresses(ctx context.Context) {
	if err := f.Machine.storeAddresses(ctx); err != nil && ctx.Err() == nil {
		f.Log.Warn("cannot store the addresses of the node", "error", err)
	}
}

// updateDNS updates the resolv.conf of the sandboxes that have the host's DNS servers. While the host has no servers, the sandboxes keep
// their last ones.
func (f *Follower) updateDNS() {
	now := f.Machine.Now()
	if len(now.Resolv.Servers) == 0 {
		return
	}
	err := f.UpdateDNS(func(sandbox *cri.PodSandboxMetadata) *cri.DNSConfig {
		pod := f.Pod(types.UID(sandbox.GetUid()))
		if pod == nil || !translate.InheritsDNS(pod, now) {
			return nil
		}
		return translate.PodDNS(pod, now)
	})
	if err != nil {
		f.Log.Warn("cannot update the resolv.conf of running pods", "error", err)
	}
}
