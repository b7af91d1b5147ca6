package machine

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/spec/translate"
	"github.com/islet-edge/islet/internal/retry"
)

// gatherTime is the time between the first notification of a change and the next read of the addresses and the resolv.conf. A new network
// causes several notifications, and a program may write a file in several steps.
const gatherTime = 100 * time.Millisecond

// readInterval is the minimum time between two readings. Some network add-ons change a route for each pod.
const readInterval = time.Second

// laterReads are the times after a change of the network at which the files are read again if inotify is not available. A DHCP client
// writes its servers soon after the address.
var laterReads = []time.Duration{2 * time.Second, 10 * time.Second, time.Minute}

// firstReread and lastReread are the first and the longest pause before the addresses are read again because they could not be read. The
// pauses double.
const firstReread, lastReread = time.Second, time.Minute

// firstPace and longestPace are the shortest and the longest interval between two reports while the network changes again and again, for
// example because of a loose cable. Each report causes a round of all pods' workers and a write to the disk. The first change after a quiet
// time is reported at once.
const firstPace, longestPace = 10 * time.Second, 5 * time.Minute

// A Follower keeps pods up to date about the machine's network, which may come or change long after they were started. It reads
// the addresses and the resolv.conf again when the kernel reports a change, and it is idle otherwise.
//
//	Uplink.Moved, inotify, Machine.Now --difference--> pace --> addresses: Came or Changed, and the store
//	                                                      '---> resolv.conf: UpdateDNS, repeated after an error
type Follower struct {
	Machine *Machine
	// Moved receives a value when the addresses of the machine may have changed.
	Moved <-chan struct{}
	// Came is called when the machine gets its first address. Containers that wait for an address must then be retried.
	Came func()
	// Changed is called when the addresses have changed in another way. The statuses of pods must then be computed again.
	Changed func()
	// Pod returns a desired pod, or nil.
	Pod func(types.UID) *v1.Pod
	// UpdateDNS passes each running sandbox to a function, and writes the DNS configuration that the function returns. It changes nothing
	// if the function returns nil.
	UpdateDNS func(func(*cri.PodSandboxMetadata) *cri.DNSConfig) error
	Log       *slog.Logger

	pending        changes    // not reported yet
	addresses, dns retry.Pace // of the reports
	hadServers     bool       // UpdateDNS was called with at least one server
	logged         string     // the last logged error of UpdateDNS; empty if its last call was successful
}

// Run works until ctx ends. It begins with an update of all sandboxes, because the machine may have changed while no agent was running.
func (f *Follower) Run(ctx context.Context) error {
	n := f.Machine
	f.addresses.First, f.dns.First = cmp.Or(f.addresses.First, firstPace), cmp.Or(f.dns.First, firstPace)
	f.storeAddresses(ctx)
	files := watchFiles(n.resolvFiles)
	defer files.close()
	if files.err != nil {
		f.Log.Warn("cannot watch the resolv.conf; islet reads it only when the network changes", "error", files.err)
	}
	due, report := time.NewTimer(0), time.NewTimer(time.Hour) // the files may have changed before the watch
	defer due.Stop()
	defer report.Stop()
	if f.hadServers = f.hasServers(); f.hadServers && !f.updateDNS() {
		f.pending.dns = true
		f.dns.Succeeded(longestPace)
	}
	report.Reset(f.report(ctx))
	var last time.Time // of the last reading
	again := firstReread
	for later, waits := len(laterReads), true; ; {
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
			switch ok := n.reread(); {
			case !ok:
				due.Reset(again)
				again = min(2*again, lastReread)
				continue
			case later < len(laterReads):
				due.Reset(laterReads[later])
				later++
			}
			again = firstReread
			continue
		case <-n.changed:
			f.pending = f.pending.with(n.takeChanges())
			report.Reset(f.report(ctx))
			continue
		case <-report.C:
			report.Reset(f.report(ctx))
			continue
		}
		if !waits {
			waits = true
			due.Reset(max(gatherTime, readInterval-time.Since(last)))
		}
	}
}

// report reports the pending changes that are due. It returns the time until the next report is due. The first address and the first DNS
// servers are reported at once, because pods may be waiting for them.
func (f *Follower) report(ctx context.Context) (left time.Duration) {
	left = time.Hour
	p := &f.pending
	if p.addresses {
		if wait := f.addresses.Left(); wait > 0 && !p.first {
			left = min(left, wait)
		} else {
			f.addresses.Succeeded(longestPace)
			f.storeAddresses(ctx)
			if p.first {
				f.Came()
			} else {
				f.Changed()
			}
			p.addresses, p.first = false, false
		}
	}
	if p.dns && !f.hasServers() {
		p.dns = false // the sandboxes keep their last servers
	}
	if p.dns {
		wait := f.dns.Left()
		if wait <= 0 || !f.hadServers {
			f.dns.Succeeded(longestPace)
			f.hadServers = true
			p.dns = !f.updateDNS()
			wait = f.dns.Left()
		}
		if p.dns {
			left = min(left, wait)
		}
	}
	return left
}

func (f *Follower) hasServers() bool { return len(f.Machine.Now().Resolv.Servers) > 0 }

func (f *Follower) storeAddresses(ctx context.Context) {
	if err := f.Machine.storeAddresses(ctx); err != nil && ctx.Err() == nil {
		f.Log.Warn("cannot store the addresses of the node", "error", err)
	}
}

// updateDNS updates the resolv.conf of the sandboxes that have the host's DNS servers. It returns false if this failed for a sandbox.
func (f *Follower) updateDNS() (ok bool) {
	now := f.Machine.Now()
	err := f.UpdateDNS(func(sandbox *cri.PodSandboxMetadata) *cri.DNSConfig {
		pod := f.Pod(types.UID(sandbox.GetUid()))
		if pod == nil || !translate.InheritsDNS(pod, now) {
			return nil
		}
		return translate.PodDNS(pod, now)
	})
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != f.logged {
		f.Log.Warn("cannot update the resolv.conf of running pods; islet retries", "error", err)
	}
	f.logged = text
	return err == nil
}
