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
// or driver does not respond, or because of a long step of an operation.
func (k *Mounter) SlowCalls(uid types.UID) (out []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for u, f := range k.inFlight {
		if d := time.Since(f.since); u.pod == uid && d > longCall {
			why := "its server or driver does not answer"
			if step := f.longStep(); step != "" {
				why = step
			}
			out = append(out, fmt.Sprintf("volume %s has not been mounted or unmounted for %s: %s", u.id, d.Round(time.Second), why))
		}
	}
	slices.Sort(out)
	return out
}
