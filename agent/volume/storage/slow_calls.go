package storage

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// longCall is the duration after which a call that is still running is reported.
const longCall = 5 * time.Second

// SlowCalls describes the calls for a pod's volumes that have been running for longer than longCall, because a server
// or driver does not respond.
func (k *Mounter) SlowCalls(uid types.UID) (out []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for u, f := range k.inFlight {
		if d := time.Since(f.since); u.pod == uid && d > longCall {
			out = append(out,
				fmt.Sprintf("volume %s has not been mounted or unmounted for %s: its server or driver does not answer",
					u.id, d.Round(time.Second)))
		}
	}
	slices.Sort(out)
	return out
}
