package trial

import (
	"encoding/json"
	"testing"
	"time"
)

// A life is the state of the node on which FuzzLife performs steps.
type life struct {
	*testing.T
	r         Record
	good      string
	configMap string          // content of the ConfigMap; empty: the node follows no ConfigMap
	chances   map[string]bool // IDs of configurations that may be tried without a request
	offered   string          // the ConfigMap's content when it was last offered
	refused   map[string]bool // programs that failed
}

// step performs one step.
func (l *life) step(s byte, now time.Time) {
	r := &l.r
	before := r.Assigned
	kept := func(what string) {
		if before != nil && r.Assigned != before {
			l.Fatalf("%s: %s does not wait any more", what, before.Name())
		}
	}
	switch text := string(rune('a' + s/16%3)); s % 16 {
	case 0, 1: // the ConfigMap changes
		if l.configMap != text {
			l.configMap, l.chances[sent(text).ID] = text, true
		}
	case 2, 3, 4:
		l.follow(now, s > 127)
		if r.HasProgram() || before == nil || before.Program != nil || l.offered == l.configMap {
			kept("a ConfigMap")
		}
		if r.Trial == nil && !r.HasProgram() {
			l.offered = l.configMap
		}
	case 5, 6:
		r.takes(asked(text), true)
	case 7: // the node no longer follows a ConfigMap
		if r.StopFollowing() {
			l.configMap, l.offered = "", ""
		}
		if before != nil && (before.Asked || before.Program != nil) {
			kept("no ConfigMap")
		}
	case 8, 9:
		if p := program(text); r.takes(p, false) && l.refused[p.ID] {
			l.Fatalf("program %s is tried again", p.ID)
		}
		kept("an archive")
	case 10:
		if r.takes(program(text), true) && before != nil && !before.Asked && before.Program == nil {
			l.chances[before.ID], l.offered = true, "" // the ConfigMap is offered again
		}
	case 11, 12:
		r.Begin(Facts{}, "boot", now)
	case 13:
		if c := r.Assigned; r.Accept(now) && c.Program == nil {
			l.good = c.Kubelet
		} else if c != nil && r.Trial == nil && before != r.Assigned {
			delete(l.refused, c.ID)
		}
	case 15:
		c := r.Assigned
		if s > 127 {
			if r.Veto("a pod", []string{text}, now) && r.Assigned == nil && c.Program != nil {
				l.refused[c.ID] = true
			}
			break
		}
		fallthrough
	default:
		c := r.Assigned
		if r.FailTrial("bad", s%16 == 14, now) && r.Assigned == nil && c.Program != nil {
			l.refused[c.ID] = true
		}
	}
}

// follow offers the content of the ConfigMap, if there is one. The parameter refused is true if the configuration cannot be tried.
func (l *life) follow(now time.Time, refused bool) {
	if l.configMap == "" {
		return
	}
	c, before := configMap(l.configMap), l.r
	if !l.r.takes(c, false) {
		return
	}
	if !l.chances[c.ID] {
		l.Fatalf("%s is tried again although it did not change", c.Kubelet)
	}
	delete(l.chances, c.ID)
	if refused {
		l.r = before
		l.r.Refuse(c, "it is wrong", now)
	}
}

// FuzzLife performs random steps. After each step, it reads the record back from its file, as after a power cut. The good configuration
// must stay in use until another one is accepted. An unchanged offer must not cancel an assignment, and a failed configuration must not be
// tried again without a request.
func FuzzLife(f *testing.F) {
	f.Add([]byte{0, 2, 11, 13, 8, 11, 15, 2, 8, 11, 14, 2, 16, 2, 11, 15, 8, 2})
	f.Add([]byte{0, 2, 11, 13, 21, 11, 14, 2, 11, 13, 2, 7, 2, 10, 11, 13})
	f.Add([]byte{0, 2, 8, 11, 255, 11, 239, 11, 13, 8, 11, 255, 12, 143, 11, 159, 11, 255})
	f.Add([]byte{0, 2, 10, 11, 13, 2, 11, 15, 0, 130, 37, 11, 12, 13, 8, 24, 11, 15, 24})
	f.Fuzz(func(t *testing.T, steps []byte) {
		l := &life{T: t, chances: map[string]bool{}, refused: map[string]bool{}}
		for i, s := range steps {
			l.step(s, noon.Add(time.Duration(i)*time.Second))
			l.r.Format = Format
			data, err := json.Marshal(l.r)
			if err != nil {
				t.Fatal(err)
			}
			if l.r, err = Decode(data); err != nil {
				t.Fatalf("step %d: %v\n%s", i, err, data)
			}
			use := l.r.Select(false)
			if use.IsLocal() != (l.good == "") || !use.IsLocal() && use.Kubelet != l.good {
				t.Fatalf("step %d: %s is used, %q is good", i, use.Name(), l.good)
			}
			if r := &l.r; len(r.History) > maxHistory || len(r.Refused) > maxRefused || r.Attempts > Attempts || r.Trial != nil &&
				r.Assigned == nil || r.Vetoed != nil && (r.Assigned == nil || r.Vetoed.Trials >= Attempts) {
				t.Fatalf("step %d: %+v", i, r)
			}
		}
	})
}
