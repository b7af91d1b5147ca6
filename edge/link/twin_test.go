package link

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/islet-edge/islet/edge/twin"
	"github.com/islet-edge/islet/internal/keys"
)

// TestClonedCard checks that the original machine keeps the node name when a clone has a copy of its memory card. The machines are
// restarted in different orders and have different clocks. The clone sends few requests, and fewer per hour later. Without ISLET_TEST_LONG
// only two cases run.
func TestClonedCard(t *testing.T) {
	short := []string{"serial numbers", "the clone's clock is behind"}
	for name, c := range map[string]struct {
		serials [2]string
		macs    bool
		clocks  [2]time.Duration
	}{
		"serial numbers":                     {serials: [2]string{"one", "two"}},
		"network cards":                      {macs: true},
		"nothing to tell them by":            {},
		"a serial number of all its kind":    {serials: [2]string{"same", "same"}},
		"the original's clock is ahead":      {serials: [2]string{"one", "two"}, clocks: [2]time.Duration{5 * 365 * 24 * time.Hour, 0}},
		"the clone's clock is ahead":         {clocks: [2]time.Duration{0, 5 * 365 * 24 * time.Hour}},
		"the clone's clock is behind":        {clocks: [2]time.Duration{0, -5 * 365 * 24 * time.Hour}},
		"both are wrong, and the same board": {serials: [2]string{"same", "same"}, clocks: [2]time.Duration{-time.Hour, time.Hour}},
	} {
		if !slices.Contains(short, name) && os.Getenv("ISLET_TEST_LONG") == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			inSite(t, func(s *site) {
				a := s.board(c.serials[0])
				a.clock = c.clocks[0]
				if c.macs {
					a.cards("00:00:5e:00:53:01")
				}
				a.on().stays(10*time.Minute, false)
				b := a.clone(c.serials[1])
				b.clock = c.clocks[1]
				if c.macs {
					b.cards("00:00:5e:00:53:02")
				}
				b.on()
				a.stays(3*time.Minute, true)
				b.back(true)

				asked := b.requests()
				a.stays(time.Hour, true)
				first := b.requests() - asked
				a.stays(2*time.Hour, true)
				later := (b.requests() - asked - first) / 2
				if first > 30 || later > first || later > 8 {
					t.Errorf("the clone asked %d times in the first hour, then %d times an hour", first, later)
				}

				b.restart()
				a.stays(3*time.Minute, true)
				b.back(true)
				b.reboot()
				a.stays(3*time.Minute, true)
				b.back(true)
				a.restart()
				a.stays(40*time.Minute, true)
				b.back(true)
				a.reboot()
				a.stays(40*time.Minute, true)
				b.back(true)
				a.off()
				b.off()
				b.on()
				time.Sleep(10 * time.Minute)
				b.back(true) // the clone waits for a user, even if the Lease is no longer renewed
				a.on()
				a.stays(40*time.Minute, true)
				b.back(true)
				b.off()
				a.stays(3*time.Hour, false)
			})
		})
	}
}

// TestWarOverTheNode checks two machines that have the same node name and no twin detection. Each overwrites the other's status only a few
// times per StatusEvery.
func TestWarOverTheNode(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.board("one")
		a.twinless = true
		a.on()
		time.Sleep(10 * time.Minute)
		b := a.clone("two")
		b.twinless = true
		fought := atomic.Int64{}
		stop := func(w http.ResponseWriter, r *http.Request) bool {
			if fought.Add(1) > 1000 { // without this limit, the time of the bubble might stand still
				s.WriteError(w, r, apierrors.NewTooManyRequestsError("enough"))
				return true
			}
			return false
		}
		s.Fault.Store(&stop)
		b.on()
		time.Sleep(40 * time.Second)
		if n := fought.Load(); n > 120 {
			t.Errorf("%d requests in 40 s", n)
		}
	})
}

// TestTakeOver checks that a user can give the node name to the clone. From then on the original does not use the name, even if the
// original is switched on much later.
func TestTakeOver(t *testing.T) {
	for name, serials := range map[string][2]string{"other serial numbers": {"one", "two"}, "nothing to tell them by": {}} {
		t.Run(name, func(t *testing.T) {
			inSite(t, func(s *site) {
				a := s.board(serials[0])
				a.on().stays(10*time.Minute, false)
				if had, err := a.twin.TakeOver(s.Context(), false); !had || err != nil {
					t.Error("the machine that has the name:", had, err)
				}
				b := a.clone(serials[1]).on()
				a.stays(5*time.Minute, true)
				if _, err := b.twin.TakeOver(s.Context(), false); err == nil {
					t.Error("a running machine lost the name")
				}
				a.off()
				time.Sleep(70 * time.Minute) // long enough for two checks
				if had, err := b.twin.TakeOver(s.Context(), false); had || err != nil {
					t.Fatal(had, err)
				}
				b.stays(time.Minute, false)
				a.on()
				b.stays(3*time.Minute, true)
				a.back(true)
				a.reboot()
				b.stays(3*time.Minute, true)
				a.back(true)
				b.reboot()
				b.stays(40*time.Minute, true)
				a.back(true)
				if _, err := a.twin.TakeOver(s.Context(), true); err != nil { // the original takes the name back while both machines run
					t.Fatal(err)
				}
				a.stays(3*time.Minute, true)
				b.back(true)
			})
		})
	}
}

// TestTakeOverReads checks that islet takeover reads the Lease itself, however rarely this machine reads it meanwhile: it is refused
// within a minute while the other machine runs, also if that machine was off at the last read, and succeeds within a minute once it is off.
func TestTakeOverReads(t *testing.T) {
	for name, prepare := range map[string]func(b *board){
		"a clone": func(*board) {},
		"a restored board": func(b *board) {
			text, err := twin.Restored(b.card.values[twin.MetaKey], "n")
			if err != nil {
				b.Fatal(err)
			}
			b.card.values[twin.MetaKey] = text
		},
		"another machine": func(b *board) { delete(b.card.values, twin.MetaKey) },
	} {
		for _, after := range []time.Duration{5 * time.Second, 20 * time.Second, time.Minute, 5*time.Hour + 7*time.Minute} {
			t.Run(fmt.Sprint(name, " after ", after), func(t *testing.T) {
				inSite(t, func(s *site) {
					a := s.board("one")
					a.on().stays(10*time.Minute, false)
					b := a.clone("two")
					prepare(b)
					b.on()
					time.Sleep(after)
					for range 2 {
						asked := b.requests()
						b.takesOver(false)
						if n := b.requests() - asked; n > 6 { // reads, and notices for the other machine
							t.Errorf("%d requests", n)
						}
					}
					if name == "a clone" { // the others take the name by themselves
						a.off()
						time.Sleep(5 * time.Hour)
						a.on()
						time.Sleep(5 * time.Second)
						b.takesOver(false)
					}
					a.off()
					b.takesOver(true)
					b.stays(time.Minute, false)
				})
			})
		}
	}
}

// takesOver runs islet takeover twice at the same time, without force. Both must have the given result within a minute.
func (b *board) takesOver(want bool) {
	b.Helper()
	began := time.Now()
	results := make(chan error)
	for range 2 {
		go func() {
			_, err := b.twin.TakeOver(b.Context(), false)
			results <- err
		}()
	}
	for range 2 {
		if err := <-results; (err == nil) != want {
			b.Errorf("takeover: %v", err)
		}
	}
	if took := time.Since(began); took >= time.Minute { // in the bubble
		b.Errorf("takeover took %s", took)
	}
}

// TestTakeOverUnread checks that a machine whose last reads of the Lease have found another machine does not take the name while the Lease
// cannot be read, and that it takes the name if the last reads have found none.
func TestTakeOverUnread(t *testing.T) {
	for _, alive := range []bool{true, false} {
		inSite(t, func(s *site) {
			a := s.board("one")
			a.on().stays(10*time.Minute, false)
			b := a.clone("two").on()
			time.Sleep(5 * time.Minute)
			if !alive {
				a.off()
				time.Sleep(2 * time.Hour)
			}
			s.Disconnect()
			s.CloseConnections()
			for range 2 {
				b.takesOver(!alive)
			}
			ctx, cancel := context.WithCancel(s.Context())
			cancel()
			if _, err := b.twin.TakeOver(ctx, false); alive && !errors.Is(err, context.Canceled) {
				t.Errorf("a command that was ended: %v", err)
			}
			s.Reconnect()
			if alive {
				time.Sleep(5 * time.Minute)
				b.takesOver(false)
				a.off()
				b.takesOver(true)
			}
			b.stays(5*time.Minute, false)
		})
	}
}

// TestOfflineTakeOver checks a replacement board that has no connection to the API server. The board holds its pods until a user calls
// takeover. After that, the pods also run after a reboot, and when the API server is reachable again.
func TestOfflineTakeOver(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.board("one")
		a.on().stays(10*time.Minute, false)
		a.off()
		s.Disconnect()
		s.CloseConnections()
		b := a.clone("two").on()
		time.Sleep(time.Minute)
		if b.twin.HoldReason() == "" {
			t.Error("pods with shared volumes start on another machine")
		}
		if _, err := b.twin.TakeOver(s.Context(), false); err != nil {
			t.Fatal(err)
		}
		if why := b.twin.HoldReason(); why != "" {
			t.Error("the pods do not start after the takeover:", why)
		}
		b.reboot()
		if why := b.twin.HoldReason(); why != "" {
			t.Error("the pods do not start after a reboot:", why)
		}
		s.Reconnect()
		b.stays(5*time.Minute, false)
		a.on()
		b.stays(3*time.Minute, true)
		a.back(true)
	})
}

// TestNeverATwin checks that a single machine is never mistaken for two machines. Each boot causes at most one additional request.
func TestNeverATwin(t *testing.T) {
	for name, do := range map[string]func(b *board){
		"agent restarted": func(b *board) { b.restart() },
		"rebooted":        func(b *board) { b.reboot() },
		"cards appear late": func(b *board) {
			b.cards()
			b.reboot()
			time.Sleep(time.Minute) // in the bubble
			b.cards("00:00:5e:00:53:01")
		},
		"a second card":                  func(b *board) { b.cards("00:00:5e:00:53:01", "00:00:5e:00:53:02"); b.reboot() },
		"serial numbers not read":        func(b *board) { b.off(); b.serials = nil; b.on() },
		"another card, the serial stays": func(b *board) { b.cards("00:00:5e:00:53:09"); b.reboot() },
		"a clock that was reset":         func(b *board) { b.clock = -20 * 365 * 24 * time.Hour; b.reboot() },
		"the store is gone": func(b *board) {
			b.off()
			b.card = &memory{values: map[string]string{}}
			b.on()
		},
		"rebooted while cut off": func(b *board) {
			b.Disconnect()
			b.CloseConnections()
			b.reboot()
			time.Sleep(time.Hour) // in the bubble
			if why := b.twin.HoldReason(); why != "" {
				b.Error("pods are held:", why)
			}
			b.Reconnect()
		},
		"a backup of an earlier boot": func(b *board) {
			back := b.Snapshot()
			b.reboot()
			time.Sleep(5 * time.Minute) // in the bubble
			b.Restore(back, 0)
			b.CloseConnections()
			b.restart()
		},
		"the Lease deleted": func(b *board) { b.Remove(b.Lease("kube-node-lease", "n")) },
		"the claim removed": func(b *board) {
			l := b.Lease("kube-node-lease", "n")
			l.Annotations = nil
			b.Put(l)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inSite(t, func(s *site) {
				b := s.board("one")
				b.cards("00:00:5e:00:53:01")
				b.on().stays(5*time.Minute, false)
				do(b)
				b.stays(3*time.Minute, false)
				b.reboot()
				b.stays(3*time.Minute, false)
				if writes := b.Requests("PATCH leases"); writes > 150 {
					t.Errorf("%d renewals", writes)
				}
			})
		})
	}
}

// TestExchangedCard checks a machine without a serial number whose network card was exchanged. The machine waits for a user and then
// continues.
func TestExchangedCard(t *testing.T) {
	inSite(t, func(s *site) {
		b := s.board("")
		b.cards("00:00:5e:00:53:01")
		b.on().stays(5*time.Minute, false)
		b.off()
		b.cards("00:00:5e:00:53:02")
		b.on()
		time.Sleep(2 * time.Minute)
		b.back(true)
		if _, err := b.twin.TakeOver(s.Context(), false); err != nil {
			t.Fatal(err)
		}
		b.stays(time.Minute, false)
		b.reboot()
		b.stays(time.Minute, false)
		b.off()
		b.cards("00:00:5e:00:53:01") // the machine has the old network card again
		b.on()
		time.Sleep(time.Minute)
		b.back(true)
		b.cards("00:00:5e:00:53:02", "00:00:5e:00:53:01") // the kernel finds the new network card later
		b.stays(time.Hour, false)
	})
}

// TestOneName checks two machines that are configured with the same node name. The first one keeps the name. The second one gets it when
// the Lease is no longer renewed.
func TestOneName(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.board("one").on()
		a.stays(5*time.Minute, false)
		b := s.board("two").on()
		a.stays(3*time.Minute, true)
		b.back(false) // the second machine has no pods from before
		a.reboot()
		a.stays(3*time.Minute, true)
		b.back(false)
		b.reboot()
		a.stays(3*time.Minute, true)
		b.back(false)
		a.off()
		b.stays(70*time.Minute, false)
		a.on() // the first machine finds that the second one, which started later, is running
		time.Sleep(5 * time.Minute)
		up := 0
		for _, x := range []*board{a, b} {
			if x.link.State().Phase == Up {
				up++
			}
		}
		if up != 1 {
			t.Errorf("%d machines are up", up)
		}
	})
}

// TestAtOnce checks several machines with copies of one memory card that boot in the same second. Exactly one of them keeps the node name.
func TestAtOnce(t *testing.T) {
	for _, serial := range []string{"", "same"} {
		inSite(t, func(s *site) {
			a := s.board(serial).on()
			a.stays(5*time.Minute, false)
			a.off()
			all := []*board{a, a.clone(serial), a.clone(serial)}
			for _, b := range all {
				b.on()
			}
			time.Sleep(10 * time.Minute)
			up := slices.DeleteFunc(slices.Clone(all), func(b *board) bool { return b.link.State().Phase != Up })
			if len(up) != 1 {
				t.Fatalf("%d machines are up", len(up))
			}
			up[0].stays(time.Hour, true)
		})
	}
}

// TestHostileClaims checks that the only effect of an invalid claim from a server is that the node disconnects.
func TestHostileClaims(t *testing.T) {
	long := make([]byte, 200<<10)
	for i := range long {
		long[i] = '1'
	}
	for name, c := range map[string]struct {
		claim, notice string
		back          bool
	}{
		"no claim":            {claim: "%s%n\x1b[2J"},
		"long":                {claim: string(long)},
		"too many parts":      {claim: "0000000000.0000000000.0.1.2"},
		"no hash":             {claim: "zzzzzzzzzz.0000000000.9.0"},
		"no number":           {claim: "0000000000.0000000000.-1.0"},
		"a term beyond all":   {claim: "0000000000.0000000000.18446744073709551615.0"},
		"a notice of no hash": {notice: "a.b\n\nc"},
		"a long notice":       {notice: string(long)},
		"a higher term":       {claim: "0000000000.0000000000.7.0", back: true},
		"an earlier claim":    {claim: "0000000000.0000000000.0.0", back: true},
	} {
		t.Run(name, func(t *testing.T) {
			inSite(t, func(s *site) {
				b := s.board("one").on()
				b.stays(time.Minute, false)
				lie := true
				fault := func(_ http.ResponseWriter, r *http.Request) bool {
					if l := s.Lease("kube-node-lease", "n"); l != nil && lie && r.Method == http.MethodPatch {
						l.Annotations = map[string]string{}
						for key, value := range map[string]string{keys.LeaseClaim: c.claim, keys.LeaseTwin: c.notice} {
							if value != "" {
								l.Annotations[key] = value
							}
						}
						s.Put(l)
					}
					return false
				}
				s.Fault.Store(&fault)
				before := b.requests()
				time.Sleep(3 * time.Minute)
				if n := b.requests() - before; n > 60 {
					t.Errorf("%d requests", n)
				}
				s.Fault.Store(nil)
				if !c.back {
					b.stays(time.Minute, false)
					return
				}
				b.back(true)
				if _, err := b.twin.TakeOver(s.Context(), true); err != nil {
					t.Fatal(err)
				}
				b.stays(time.Minute, false)
			})
		})
	}
}
