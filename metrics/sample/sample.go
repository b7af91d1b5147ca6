package sample

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/process"
)

// Kind is the kind of content of a cgroup: the whole machine, all pods, the pods of a QoS class, a pod, or a container.
type Kind int

// These are the kinds of cgroups.
const (
	Root  Kind = iota // the root of the hierarchy, which is the whole machine
	Pods              // kubepods
	Class             // the cgroup of a QoS class
	Pod
	Container // a container, or the sandbox of a pod
	Other     // a cgroup whose path is configured
)

// A Group contains the figures of one cgroup.
type Group struct {
	Path      string // relative to the root of the hierarchy
	Kind      Kind
	Pod       string // UID of the pod; set for Pod and Container
	Container string // container ID
	cgroup.Reading
	NanoCores *uint64             // CPU usage since the previous sample; nil if unknown
	Network   []process.Interface // set for Root, and for a Pod with its own network
	Open      process.Files       // set for a Container
	OpenLimit uint64              // open files limit of the first process of a Container; 0 if unknown

	ownNet     bool // true if the first process of a Container is not in the host's network namespace
	hostEnds   process.HostEnds
	networkPID int // for a Pod: PID of a process in the pod's own network namespace; 0 if there is no such process
}

// A Sample contains the figures of all cgroups at one time. It is immutable.
type Sample struct {
	At     time.Time
	Groups []Group // the Root comes first, and each group comes before its descendants
}

// Find returns the group with the given path, or nil.
func (s *Sample) Find(path string) *Group {
	i := slices.IndexFunc(s.Groups, func(g Group) bool { return g.Path == path })
	if i < 0 {
		return nil
	}
	return &s.Groups[i]
}

// Config is the configuration of a Sampler.
type Config struct {
	Cgroups *cgroup.CachedReader
	Process process.Reader
	Pods    string   // path of kubepods
	Others  []string // paths of additional cgroups
	// Self is one of the paths in Others: the cgroup of this process. On cgroup v1 the process may be in another cgroup of the hierarchy
	// cpuacct. In this case the CPU time of this process is used for the cgroup.
	Self   string
	MaxAge time.Duration // maximum age of a returned Sample; the default is 1 s
}

// A Sampler takes samples. Its methods are safe for concurrent use.
type Sampler struct {
	c Config

	mu          sync.Mutex
	last        *Sample
	forgetTimer *time.Timer
	rates       map[string]groupState // by path
}

// A groupState contains the values of a group that the next sample needs: the counters from which the CPU usage is computed, and the values
// that are reused if no process has run.
type groupState struct {
	at   time.Time
	used time.Duration
	nano *uint64
	seen time.Time // time of the last sample that contained the group

	network    []process.Interface
	hostEnds   process.HostEnds // for a Pod: the HostEnds of the process with the PID someone
	networkPID int

	ran       uint64
	first     int // PID of the first process
	ownNet    bool
	open      process.Files
	openLimit uint64
}

// New returns a Sampler. It reads nothing.
func New(c Config) *Sampler {
	if c.MaxAge == 0 {
		c.MaxAge = time.Second
	}
	return &Sampler{c: c}
}

// Now returns a sample that is at most MaxAge old. A call during a reading waits for that reading.
func (s *Sampler) Now() (*Sample, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && time.Since(s.last.At) < s.c.MaxAge {
		return s.last, nil
	}
	w := sampleWalk{
		c: &s.c, sample: &Sample{At: time.Now(), Groups: make([]Group, 0, len(s.rates)+8)}, before: s.rates,
	}
	if err := w.readAll(); err != nil {
		return nil, err
	}
	if w.lastError != nil && !slices.ContainsFunc(w.sample.Groups, func(g Group) bool { return g.Kind == Pod }) {
		return nil, w.lastError
	}
	s.setRates(w.sample)
	s.last = w.sample
	if s.forgetTimer == nil {
		s.forgetTimer = time.AfterFunc(2*s.c.MaxAge, s.dropOld)
	}
	return w.sample, nil
}

// dropOld releases the sample if it is too old to be returned again.
func (s *Sampler) dropOld() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetTimer = nil
	if s.last != nil && time.Since(s.last.At) < s.c.MaxAge {
		s.forgetTimer = time.AfterFunc(2*s.c.MaxAge, s.dropOld)
		return
	}
	s.last = nil
}

// minInterval is the minimum interval for computing a rate.
const minInterval = 500 * time.Millisecond

// setRates computes the CPU usage of each group from the counters of the previous sample.
func (s *Sampler) setRates(now *Sample) {
	if s.rates == nil {
		s.rates = make(map[string]groupState, len(now.Groups))
	}
	for i := range now.Groups {
		g := &now.Groups[i]
		r := groupState{at: g.At, used: g.CPU}
		if last, ok := s.rates[g.Path]; ok {
			switch between := g.At.Sub(last.at); {
			case between < minInterval:
				r = last
			case g.CPU >= last.used: // a lower value would mean that this is another cgroup with the same name
				n := uint64(float64(g.CPU-last.used) / float64(between) * 1e9)
				r.nano = last.nano
				if r.nano == nil || *r.nano != n {
					r.nano = &n
				}
			}
		}
		g.NanoCores = r.nano
		r.network, r.hostEnds, r.networkPID = nil, g.hostEnds, g.networkPID
		if g.networkPID > 0 {
			r.network = g.Network
		}
		r.ran, r.first, r.ownNet, r.open, r.openLimit, r.seen = g.UsageTurn, g.First, g.ownNet, g.Open, g.OpenLimit, now.At
		s.rates[g.Path] = r
	}
	if len(s.rates) > len(now.Groups) {
		maps.DeleteFunc(s.rates, func(_ string, r groupState) bool { return !r.seen.Equal(now.At) })
	}
}

// A sampleWalk contains the state while one sample is taken.
type sampleWalk struct {
	c         *Config
	sample    *Sample
	before    map[string]groupState
	links     process.Links
	lastError error // the error of the last pod that was omitted; nil if no pod was omitted
}

// noProof is an empty Reading. With noProof as the ancestor, add always reads the cgroup, because an empty Reading does not prove that a
// descendant is unchanged.
var noProof cgroup.Reading

// addGroup adds a cgroup to the sample. It reads the cgroup, unless the reading of an ancestor proves that the cgroup is unchanged. It
// returns false if the cgroup does not exist.
func (w *sampleWalk) addGroup(g Group, ancestor cgroup.Reading) (*Group, bool, error) {
	if d, ok := w.c.Cgroups.UnchangedReading(g.Path, ancestor); ok {
		g.Reading = d
		w.sample.Groups = append(w.sample.Groups, g)
		return &w.sample.Groups[len(w.sample.Groups)-1], true, nil
	}
	d, err := w.c.Cgroups.ReadShared(g.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	switch {
	case err == nil || g.Kind == Root: // the kernel may not permit reading all files of the root
	case g.Kind == Pod || g.Kind == Container:
		return nil, false, podError{err}
	default:
		return nil, false, err
	}
	g.Reading = d
	w.sample.Groups = append(w.sample.Groups, g)
	return &w.sample.Groups[len(w.sample.Groups)-1], true, nil
}

func (w *sampleWalk) readAll() error {
	root, ok, err := w.addGroup(Group{Path: "/", Kind: Root}, noProof)
	if err != nil {
		return err
	}
	if ok {
		root.Network = w.c.Process.Network(0)
	}
	for _, other := range w.c.Others {
		g, ok, err := w.addGroup(Group{Path: other, Kind: Other}, noProof)
		if err != nil {
			return err
		}
		if ok && g.CPU == 0 && other == w.c.Self {
			own := *g.Details
			own.User, own.System = process.SelfCPUTime()
			own.CPU = own.User + own.System
			g.Details = &own
		}
	}
	all, ok, err := w.addGroup(Group{Path: w.c.Pods, Kind: Pods}, noProof)
	if err != nil || !ok {
		return err // no pod has run yet
	}
	return w.readPods(w.c.Pods, all.Reading, true)
}

// podError means that the cgroup of a pod could not be read. The sample then contains all other cgroups.
type podError struct{ error }

// visitChildren calls the caller's function for each direct child of a cgroup. The function returns false if the child no longer exists. In
// this case visitChildren discards the added groups and starts again with a new list.
func (w *sampleWalk) visitChildren(dir string, ancestor cgroup.Reading, f func(path, name string) (bool, error)) error {
	begun := len(w.sample.Groups)
again:
	for range 3 {
		w.sample.Groups = w.sample.Groups[:begun]
		paths, listed := w.c.Cgroups.StoredChildren(dir, ancestor)
		if !listed {
			var err error
			if paths, err = w.c.Cgroups.Children(dir); err != nil {
				return err
			}
		}
		for _, path := range paths {
			ok, err := f(path, path[strings.LastIndexByte(path, '/')+1:])
			if err != nil {
				if errors.As(err, new(podError)) {
					w.lastError = err
					continue
				}
				return err
			}
			if !ok {
				w.c.Cgroups.Forget(dir)
				continue again
			}
		}
		return nil
	}
	return nil // the children change all the time; the sample contains most children of the last list
}

// readPods reads the pods in kubepods or in a QoS class. It does not read a cgroup if the reading of an ancestor proves that the cgroup is
// unchanged.
func (w *sampleWalk) readPods(dir string, ancestor cgroup.Reading, classes bool) error {
	return w.visitChildren(dir, ancestor, func(at, name string) (bool, error) {
		if uid, ok := podUID(name); ok {
			return w.readPod(at, uid, ancestor)
		}
		if !classes || !isClass(name) {
			return true, nil
		}
		class, ok, err := w.addGroup(Group{Path: at, Kind: Class}, ancestor)
		if err != nil || !ok {
			return ok, err
		}
		return true, w.readPods(at, ancestor.Oldest(class.Reading), false)
	})
}

func (w *sampleWalk) readPod(at, uid string, ancestor cgroup.Reading) (bool, error) {
	g, ok, err := w.addGroup(Group{Path: at, Kind: Pod, Pod: uid}, ancestor)
	if err != nil || !ok {
		return ok, err
	}
	ancestor = ancestor.Oldest(g.Reading)
	pod := len(w.sample.Groups) - 1
	someone := 0 // PID of a process in the pod's own network
	err = w.visitChildren(at, ancestor, func(path, name string) (bool, error) {
		g, ok, err := w.addGroup(Group{Path: path, Kind: Container, Pod: uid, Container: containerID(name)}, ancestor)
		if err != nil || !ok {
			return ok, err
		}
		if g.First > 0 {
			w.readProcesses(g)
		}
		if g.ownNet {
			someone = g.First
		}
		return true, nil
	})
	if someone > 0 {
		w.readNetwork(&w.sample.Groups[pod], someone)
	}
	return true, err
}

// readNetwork reads the network figures of a pod, from the namespace of one of its processes. If no process of the pod has run since the
// previous sample, and the pod's veths had no traffic, it reuses the previous figures.
func (w *sampleWalk) readNetwork(pod *Group, someone int) {
	last := w.before[pod.Path]
	if last.networkPID != someone {
		last = groupState{}
	}
	pod.networkPID = someone
	if pod.UsageTurn == last.ran && w.links.IsSame(last.hostEnds) {
		pod.Network, pod.hostEnds = last.network, last.hostEnds
		return
	}
	pod.Network = w.c.Process.Network(someone)
	if w.c.Process.Root == "" { // the default: the processes are on this machine
		pod.hostEnds = w.links.HostEnds(last.hostEnds, someone, len(pod.Network))
	}
}

func (w *sampleWalk) readProcesses(g *Group) {
	if last, ok := w.before[g.Path]; ok && g.UsageTurn == last.ran && last.first == g.First && last.open.Known {
		g.Open, g.OpenLimit, g.ownNet = last.open, last.openLimit, last.ownNet
		return
	}
	pids := []int{g.First}
	if g.Processes > 1 {
		pids, _ = w.c.Cgroups.Processes(g.Path)
	}
	g.Open, g.ownNet = w.c.Process.Open(pids), !w.c.Process.SameNetwork(g.First)
	g.OpenLimit, _ = process.OpenFilesLimit(g.First)
}

// podUID returns the UID in the name of a pod's cgroup. The name is pod<uid>, or ...-pod<uid>.slice
// with underscores instead of the dashes of the UID.
func podUID(name string) (string, bool) {
	if slice, ok := strings.CutSuffix(name, ".slice"); ok {
		name = strings.ReplaceAll(slice[strings.LastIndex(slice, "-")+1:], "_", "-")
	}
	uid, ok := strings.CutPrefix(name, "pod")
	return uid, ok && uid != ""
}

func isClass(name string) bool {
	name = strings.TrimSuffix(name, ".slice")
	name = name[strings.LastIndex(name, "-")+1:]
	return name == "burstable" || name == "besteffort"
}

// containerID returns the container ID in the name of a container's cgroup. The name is the ID, or a scope
// such as cri-containerd-<id>.scope.
func containerID(name string) string {
	if scope, ok := strings.CutSuffix(name, ".scope"); ok {
		return scope[strings.LastIndex(scope, "-")+1:]
	}
	return name
}
