package brake

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestRestoredFromABackup(t *testing.T) {
	for name, others := range map[string]int64{"older": 0, "overtaken": 10_000} {
		t.Run(name, func(t *testing.T) {
			at(t, func(s *site) {
				for _, name := range []string{"b", "c", "d"} {
					s.Terminate(pod(name), 1)
				}
				s.want("a", "")
				backup := s.Snapshot()
				for _, name := range []string{"e", "f", "g"} {
					s.Put(pod(name))
				}
				s.want("a e f g", "")
				time.Sleep(time.Minute)
				s.Restore(backup, others)
				time.Sleep(30 * time.Second)
				s.want("a e f g", "e f g")
				s.Put(pod("new")) // a new pod still starts
				s.want("a e f g new", "e f g")
				s.Terminate(pod("new"), 1)
				s.want("a e f g", "e f g")
				s.stays("a e f g", "e f g")
				s.accept(3)
				s.want("a", "")
				s.stays("a", "")
			})
		})
	}
}

// TestRestoredSoonAfterTheBackup checks that the node detects a restored server from the resource versions of the pods. The node has not
// renewed its Lease since the backup.
func TestRestoredSoonAfterTheBackup(t *testing.T) {
	at(t, func(s *site) {
		backup := s.Snapshot()
		for range 20 {
			s.Put(pod("e"))
		}
		s.want("a b c d e", "")
		s.Restore(backup, 0)
		time.Sleep(time.Second)
		s.Put(pod("f")) // the new pod has a version that the node has seen already
		s.want("a b c d f", "")
		s.stays("a b c d f", "")
	})
}

// TestRestoredWhileTheAgentIsDown checks that a node detects a restored server from its stored marker.
func TestRestoredWhileTheAgentIsDown(t *testing.T) {
	at(t, func(s *site) {
		backup := s.Snapshot()
		for _, name := range []string{"e", "f", "g", "h"} {
			s.Put(pod(name))
		}
		s.want("a b c d e f g h", "")
		time.Sleep(time.Minute)
		s.stop()
		s.Restore(backup, 0)
		s.start()
		time.Sleep(30 * time.Second)
		s.want("a b c d e f g h", "e f g h")
		for _, name := range []string{"e", "f", "g", "h"} { // as after the restore of the right backup
			p, _ := s.get(name)
			s.Put(p)
		}
		s.want("a b c d e f g h", "e f g h") // until the pod list contains them
		s.restart()
		s.want("a b c d e f g h", "")
		s.stays("a b c d e f g h", "")
	})
}

// get returns a copy of a wanted pod without annotations.
func (s *site) get(name string) (*v1.Pod, bool) {
	for _, p := range s.List() {
		if p.Pod.Name == name {
			p := p.Pod.DeepCopy()
			p.Annotations = nil
			return p, true
		}
	}
	return nil, false
}

func TestClusterMadeAnew(t *testing.T) {
	at(t, func(s *site) {
		right := s.Snapshot()
		s.away(func() {
			s.recreateCluster()
			s.Put(pod("new"))
		})
		s.want("a b c d new", "a b c d")
		if !slices.Contains(s.events, ReasonHeld) {
			t.Errorf("events: %q", s.events)
		}
		s.stays("a b c d new", "a b c d")
		s.Remove(pod("new")) // a forced deletion of a pod that this cluster has created
		s.want("a b c d", "a b c d")
		s.away(func() { s.Restore(right, 0) })
		// Whether the node lists its pods again soon depends on random delays. The next check of the hold sees the restored cluster.
		time.Sleep(lookEvery)
		s.want("a b c d", "")
		s.stays("a b c d", "")
	})
}

func TestNodeDeletedWhileAway(t *testing.T) {
	for name, remove := range ways {
		t.Run(name, func(t *testing.T) {
			at(t, func(s *site) {
				s.away(func() {
					s.Remove(s.Server.Node("n"))
					for _, name := range []string{"a", "b", "c", "d"} {
						remove(s, name)
					}
				})
				time.Sleep(2 * time.Minute)
				s.want("a b c d", "a b c d")
				s.Put(pod("a")) // a StatefulSet creates its pod again, which replaces the old one
				s.want("a b c d", "b c d")
				s.stays("a b c d", "b c d")
				s.accept(3)
				s.want("a", "")
				s.stays("a", "")
			})
		})
	}
}

// This map contains three ways to remove a pod that is still running: without a deletion, by kubectl delete --force, and by the pod
// garbage collector.
var ways = map[string]func(s *site, name string){
	"gone":   func(s *site, name string) { s.Remove(pod(name)) },
	"forced": func(s *site, name string) { s.Terminate(pod(name), 0) },
	"collected": func(s *site, name string) {
		p := s.Server.Pod("default", name)
		p.Status.Phase = v1.PodFailed
		p.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "DeletionByPodGC"}}
		n := s.Server.Node("n")
		other := n == nil || n.UID != s.brake.currentState().Known.Node
		s.Put(p)
		synctest.Wait()
		if d, ok := s.get(name); other && ok && d.Status.Phase == v1.PodFailed {
			s.Errorf("pod %s has ended", name)
		}
		s.Terminate(p, 0)
	},
}

// TestNodeDeletedWhileConnected removes pods one after the other after their Node object was deleted. It checks that the node holds all
// these pods. If only one pod is removed, the pod ends.
func TestNodeDeletedWhileConnected(t *testing.T) {
	for name, remove := range ways {
		t.Run(name, func(t *testing.T) {
			at(t, func(s *site) {
				s.Remove(s.Server.Node("n"))
				for _, name := range []string{"a", "b", "c", "d"} {
					remove(s, name)
					time.Sleep(500 * time.Millisecond)
				}
				time.Sleep(2 * time.Minute)
				s.want("a b c d", "a b c d")
				s.stays("a b c d", "a b c d")
			})
			at(t, func(s *site) { // a single removed pod ends
				s.Remove(s.Server.Node("n"))
				time.Sleep(10 * time.Second)
				remove(s, "c")
				time.Sleep(2 * time.Minute)
				s.want("a b d", "")
				remove(s, "d")
				s.want("a b", "")
			})
		})
	}
}

func TestNormalDeletionsEndAtOnce(t *testing.T) {
	for name, remove := range map[string]func(s *site){
		"gracefully": func(s *site) {
			for _, name := range []string{"a", "b", "c", "d"} {
				s.Terminate(pod(name), 30)
			}
		},
		"by force": func(s *site) {
			for _, name := range []string{"a", "b", "c", "d"} {
				s.Terminate(pod(name), 0)
			}
		},
		"without a word": func(s *site) {
			for _, name := range []string{"a", "b", "c", "d"} {
				s.Remove(pod(name))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			at(t, func(s *site) {
				remove(s)
				s.want("", "")
			})
			at(t, func(s *site) {
				s.away(func() { remove(s) })
				s.want("", "")
			})
		})
	}
}

// TestLyingList checks that no pod ends because of a wrong pod list. The wrong lists lack existing pods, or are not pod lists. The server
// sends each of them as the response to a list request and as the beginning of a watch.
func TestLyingList(t *testing.T) {
	list := func(metadata, items string) string {
		return `{"kind":"PodList","apiVersion":"v1","metadata":{` + metadata + `},"items":[` + items + `]}`
	}
	begin := func(metadata, events string) string {
		return events + `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{` + metadata +
			`"annotations":{"k8s.io/initial-events-end":"true"}}}}`
	}
	const a = `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"default","name":"a","uid":"UID"},"spec":{"nodeName":"n",` +
		`"containers":[{"name":"c","image":"a:1"}]}}`
	for name, answer := range map[string]struct{ list, watch string }{
		"empty":              {list(`"resourceVersion":"99999"`, ""), begin(`"resourceVersion":"99999",`, "")},
		"without a version":  {list("", ""), begin("", "")},
		"nothing but braces": {"{}", "{}"},
		"cut short":          {list(`"resourceVersion":"99999"`, a), begin(`"resourceVersion":"99999",`, `{"type":"ADDED","object":`+a+`}`)},
	} {
		t.Run(name, func(t *testing.T) {
			at(t, func(s *site) {
				a, _ := s.get("a")
				var lies atomic.Int64
				lie := func(w http.ResponseWriter, r *http.Request) bool {
					text := answer.list
					switch {
					case r.URL.Path != "/api/v1/pods":
						return false
					case r.URL.Query().Get("sendInitialEvents") == "true":
						text = answer.watch
						lies.Add(1)
					case r.URL.Query().Get("watch") == "true":
						return false
					}
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprint(w, strings.ReplaceAll(text, "UID", string(a.UID)))
					return true
				}
				s.Fault.Store(&lie)
				s.Compact()
				s.CloseConnections()
				s.stays("a b c d", "")
				if lies.Load() == 0 {
					t.Error("the faulty answer was never sent")
				}
				s.Fault.Store(nil)
				s.Terminate(pod("b"), 1)
				time.Sleep(time.Minute)
				s.want("a c d", "")
			})
		})
	}
}

// TestUnsure checks that no pod ends while requests for the Node object fail. The node cannot identify the server without this object.
func TestUnsure(t *testing.T) {
	at(t, func(s *site) {
		deny := func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.URL.Path, "/api/v1/nodes") {
				s.Server.WriteError(w, r, apierrors.NewInternalError(fmt.Errorf("no")))
				return true
			}
			return false
		}
		s.Fault.Store(&deny)
		s.Remove(pod("a"))
		time.Sleep(time.Minute)
		s.want("a b c d", "")
		s.Fault.Store(nil)
		time.Sleep(time.Minute)
		s.want("b c d", "")
	})
}

func TestHoldEndsByTime(t *testing.T) {
	at(t, func(s *site) {
		s.limit = time.Hour
		s.restart()
		s.away(func() { s.recreateCluster() })
		s.stays("a b c d", "a b c d")
		time.Sleep(55 * time.Minute)
		s.want("", "")
	})
}

// TestIdleWire checks that the packages brake and history send no requests while nothing changes for half an hour.
func TestIdleWire(t *testing.T) {
	at(t, func(s *site) {
		asked := []string{"GET leases", "GET nodes", "GET services", "LIST pods"}
		count := func() (all []int) {
			for _, what := range asked {
				all = append(all, s.Requests(what))
			}
			return all
		}
		before, renewals := count(), s.Requests("PATCH leases")
		time.Sleep(30 * time.Minute)
		if now := count(); !slices.Equal(now, before) {
			t.Errorf("%q: %v requests, half an hour ago %v", asked, now, before)
		}
		if s.Requests("PATCH leases")-renewals < 100 {
			t.Error("the lease is not renewed")
		}
	})
}
