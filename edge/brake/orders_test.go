package brake

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/edge/store"
)

// A mortal is a Meta that drops all writes after the site's agent was killed.
type mortal struct {
	*store.Store
	s *site
}

func (m mortal) SetMeta(ctx context.Context, key, value string) error {
	if m.s.dead.Load() {
		return nil
	}
	return m.Store.SetMeta(ctx, key, value)
}

func (m mortal) SetMetaOrRetry(ctx context.Context, key, value string) error {
	if m.s.dead.Load() {
		return nil
	}
	return m.Store.SetMetaOrRetry(ctx, key, value)
}

// kill ends the agent and drops its last writes.
func (s *site) kill() {
	s.dead.Store(true)
	s.stop()
	s.dead.Store(false)
}

// orders returns all permutations of names.
func orders(names []string) [][]string {
	if len(names) == 0 {
		return [][]string{nil}
	}
	var out [][]string
	for i, first := range names {
		for _, rest := range orders(slices.Delete(slices.Clone(names), i, i+1)) {
			out = append(out, append([]string{first}, rest...))
		}
	}
	return out
}

// TestEveryOrderOfDisasters checks that the node holds pods that were created after a backup. Four disasters happen in every order: the
// backup is restored, the connection is cut, the agent is killed, and the machine is rebooted. The machine and the connection return after
// the last disaster. In the case "soon", the agent has not renewed its lease since the pods were created, so no renewal has stored the
// marker. The other cases run in every fourth order, or in every order with ISLET_TEST_LONG.
func TestEveryOrderOfDisasters(t *testing.T) {
	for i, order := range orders([]string{"restored", "cut", "killed", "reboot"}) {
		for name, c := range map[string]struct {
			settled time.Duration // time from the creation of the pods to the first disaster
			others  int64         // number of changes to other objects after the restore
		}{"soon": {time.Second, 0}, "later": {time.Minute, 0}, "overtaken": {time.Minute, 10_000}} {
			if name != "soon" && i%4 > 0 && os.Getenv("ISLET_TEST_LONG") == "" {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", strings.Join(order, ","), name), func(t *testing.T) {
				at(t, func(s *site) {
					backup := s.Snapshot()
					for _, name := range []string{"e", "f", "g", "h"} {
						s.Put(pod(name))
					}
					s.want("a b c d e f g h", "")
					time.Sleep(c.settled)
					off := false
					for _, disaster := range order {
						switch disaster {
						case "restored":
							s.Restore(backup, c.others)
						case "cut":
							s.Disconnect()
							s.CloseConnections()
						case "killed":
							s.kill()
							if !off {
								s.start()
							}
						case "reboot":
							s.kill()
							off = true
						}
						time.Sleep(time.Second)
					}
					s.Reconnect()
					s.start()
					time.Sleep(2 * time.Minute)
					s.want("a b c d e f g h", "e f g h")
					s.stays("a b c d e f g h", "e f g h")
				})
			})
		}
	}
}
