package storage

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// longCall is how long a call for a volume takes before people are told of it.
const longCall = 5 * time.Second

// Waiting says what of a pod's volumes takes long: a server or a driver does not answer.
func (k *Keeper) Waiting(uid types.UID) (out []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for u, f := range k.flight {
		if d := time.Since(f.since); u.pod == uid && d > longCall {
			out = append(out, fmt.Sprintf("volume %s has not been mounted or unmounted for %s: its server or driver does not answer", u.id, d.Round(time.Second)))
		}
	}
	slices.Sort(out)
	return out
}
