package desired

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
)

var errFull = errors.New("the disk is full")

// A memory is an implementation of Store in memory. Its updates fail on request.
type memory struct {
	pods map[types.UID]store.Pod
	full bool
}

func (m *memory) Pods(context.Context) ([]store.Pod, error) {
	all := slices.Collect(maps.Values(m.pods))
	slices.SortFunc(all, func(a, b store.Pod) int { return int(a.Seq - b.Seq) })
	for i := range all {
		all[i].Pod = all[i].Pod.DeepCopy()
	}
	return all, nil
}

func (m *memory) UpdatePods(_ context.Context, put []store.Pod, remove []types.UID) error {
	if m.full && len(put)+len(remove) > 0 {
		return errFull
	}
	for _, uid := range remove {
		delete(m.pods, uid)
	}
	for _, p := range put {
		m.pods[p.Pod.UID] = p
	}
	return nil
}

// A simulation is a random history of a node. Its choices are derived from bytes. Sources deliver sets of pods, users apply and delete
// pods, pods end, the agent restarts, and the disk becomes full.
type simulation struct {
	testing.TB
	*Desired
	disk  *memory
	said  map[string][]SourcePod // the last accepted set of each source
	local map[string]types.UID   // UIDs of applied pods that were not deleted, by name
	seen  map[types.UID]Pod      // pods at the last call of Poke
	bytes interface{ ReadByte() (byte, error) }
}

func (s *simulation) restart() {
	s.Helper()
	log := slog.New(slog.DiscardHandler)
	d, err := New(Config{Store: s.disk, Log: log, Poke: func(uid types.UID) {
		p, ok := s.Get(uid)
		if ok && p == s.seen[uid] {
			s.Errorf("Poke was called for the unchanged pod %s", uid)
		}
		delete(s.seen, uid)
		if ok {
			s.seen[uid] = p
		}
	}})
	if err != nil {
		s.Fatal(err)
	}
	s.Desired, s.said, s.seen = d, map[string][]SourcePod{}, map[types.UID]Pod{}
	for _, p := range d.List() {
		s.seen[p.Pod.UID] = p
	}
}

func (s *simulation) pick(n int) int {
	b, err := s.bytes.ReadByte()
	if err != nil {
		return 0
	}
	return int(b) % n
}

// spec returns one of nine pods: three names with three contents each.
func (s *simulation) spec() string {
	name := string(rune('a' + s.pick(3)))
	return fmt.Sprintf("%s/%s%d", name, name, s.pick(3))
}

func (s *simulation) step() {
	ctx := context.Background()
	switch source := []string{File, HTTP}[s.pick(2)]; s.pick(8) {
	case 0, 1:
		var specs []string
		for range s.pick(5) {
			specs = append(specs, s.spec())
		}
		var problems []Problem
		if s.pick(4) == 0 {
			problems = []Problem{{Origin: "/manifests/" + s.spec()[2:], Message: "cannot be read"}}
		}
		s.set(ctx, source, sourcePods(specs...), problems)
	case 2:
		before := s.List()
		s.Desired.ReportFailure(source, []Problem{{Message: "no link"}})
		if !slices.Equal(before, s.List()) {
			s.Error("a source that fails has changed pods")
		}
	case 3:
		p := pod(s.spec())
		if err := s.Apply(ctx, []*v1.Pod{p}); err == nil {
			s.local[p.Name] = p.UID
		} else if !errors.Is(err, errFull) && !errors.Is(err, ErrForeign) {
			if _, mine := s.local[p.Name]; mine {
				s.Error("apply over a pod of the local source:", err)
			}
		}
	case 4:
		p := pod(s.spec())
		if err := s.Delete(ctx, p.UID, nil); err == nil && s.local[p.Name] == p.UID {
			delete(s.local, p.Name)
		}
	case 5:
		s.disk.full = !s.disk.full
	case 6:
		s.restart()
	default:
		s.forgetOne(ctx)
	}
}

func (s *simulation) set(ctx context.Context, source string, all []SourcePod, problems []Problem) {
	before := s.List()
	err := s.Set(ctx, source, all, problems)
	if err != nil {
		if !errors.Is(err, errFull) || !slices.Equal(before, s.List()) {
			s.Error("a rejected set has changed pods:", err)
		}
		return
	}
	s.said[source] = all
	for _, p := range before {
		now, _ := s.Get(p.Pod.UID)
		listed := slices.ContainsFunc(all, func(o SourcePod) bool { return o.Pod.UID == p.Pod.UID })
		unsure := slices.ContainsFunc(problems, func(x Problem) bool { return x.Origin == p.Origin })
		if keeps := p.Source != source || listed || unsure; !p.Deleting && now.Deleting == keeps {
			s.Errorf("%s of %s: listed %v, unsure %v, but deleting %v", p.Pod.UID, p.Source, listed, unsure, now.Deleting)
		}
	}
}

func (s *simulation) forgetOne(ctx context.Context) {
	all := slices.DeleteFunc(s.List(), func(p Pod) bool { return !p.Deleting })
	if len(all) > 0 {
		if err := s.Forget(ctx, all[s.pick(len(all))].Pod.UID); err != nil && !errors.Is(err, errFull) {
			s.Error(err)
		}
	}
}

// check asserts the invariants.
func (s *simulation) check() {
	s.Helper()
	holders, starting := map[string]int{}, map[string]int{}
	for _, p := range s.List() {
		name := p.Pod.Name
		if ownsName(s.rows[p.Pod.UID]) {
			holders[name]++
		}
		if !p.Deleting && p.Predecessor == "" || p.Deleting {
			starting[name] += map[bool]int{false: 1, true: 0}[p.Deleting]
			for _, o := range s.List() {
				if !p.Deleting && o.Deleting && o.Pod.Name == name {
					s.Errorf("%s may start while %s is ending", p.Pod.UID, o.Pod.UID)
				}
			}
		}
		if other, ok := s.Get(p.Predecessor); p.Predecessor != "" && (!ok || !other.Deleting) {
			s.Errorf("%s waits for %s, which is not ending", p.Pod.UID, p.Predecessor)
		}
		if s.seen[p.Pod.UID] != p {
			s.Errorf("%s has changed without a poke", p.Pod.UID)
		}
		if row := s.disk.pods[p.Pod.UID]; row.Deleting != p.Deleting || row.Source != p.Source {
			s.Errorf("%s is not stored as it is shown", p.Pod.UID)
		}
	}
	for name, n := range holders {
		if n > 1 || starting[name] > 1 {
			s.Errorf("%d pods are named %s", n, name)
		}
	}
	if len(s.seen) != len(s.List()) || len(s.disk.pods) != len(s.List()) {
		s.Error("a pod was removed without a call of Poke, or is still stored")
	}
	for name, uid := range s.local {
		if row, ok := s.rows[uid]; !ok || !ownsName(row) || row.Source != Local {
			s.Errorf("pod %s was applied as %s and is lost", name, uid)
		}
	}
	for source, all := range s.said {
		s.checkSourcePods(source, all)
	}
}

// checkSourcePods asserts that each pod of a source is followed or reported as a problem.
func (s *simulation) checkSourcePods(source string, all []SourcePod) {
	for _, c := range all {
		row, ok := s.rows[c.Pod.UID]
		followed := ok && ownsName(row) && row.Source == source
		if !followed && !slices.ContainsFunc(s.Problems(), func(p Problem) bool { return p.Source == source && p.Origin == c.Origin }) {
			s.Errorf("%s of %s is neither followed nor a problem", c.Pod.UID, source)
		}
	}
}

// settle ends all deleting pods. It asserts that no pod is deleting afterwards, and that every wanted name has its pod.
func (s *simulation) settle() {
	s.disk.full = false
	for range 100 {
		s.forgetOne(context.Background())
		s.check()
	}
	live := map[string]bool{}
	for _, p := range s.List() {
		if p.Deleting || p.Predecessor != "" {
			s.Errorf("%s never settles", p.Pod.UID)
		}
		live[p.Pod.Name] = true
	}
	for source, all := range s.said {
		for _, c := range all {
			if !live[c.Pod.Name] {
				s.Errorf("%s of %s does not run", c.Pod.Name, source)
			}
		}
	}
}

func simulate(t testing.TB, bytes interface{ ReadByte() (byte, error) }, steps int) {
	s := &simulation{TB: t, disk: &memory{pods: map[types.UID]store.Pod{}}, local: map[string]types.UID{}, bytes: bytes}
	s.restart()
	for range steps {
		s.step()
		s.check()
		if t.Failed() {
			return
		}
	}
	s.settle()
}

type dice struct{ *rand.Rand }

func (d dice) ReadByte() (byte, error) { return byte(d.Uint32()), nil }

func TestSimulatedLives(t *testing.T) {
	lives := 60
	if testing.Short() {
		lives = 30
	}
	for seed := range uint64(lives) {
		simulate(t, dice{rand.New(rand.NewPCG(seed, 1))}, 200)
		if t.Failed() {
			t.Fatal("seed", seed)
		}
	}
}

func FuzzLife(f *testing.F) {
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 2000 {
			return
		}
		simulate(t, &reader{data}, len(data)/3)
	})
}

type reader struct{ data []byte }

func (r *reader) ReadByte() (byte, error) {
	if len(r.data) == 0 {
		return 0, io.EOF
	}
	b := r.data[0]
	r.data = r.data[1:]
	return b, nil
}
