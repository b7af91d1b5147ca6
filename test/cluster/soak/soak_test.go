package soak

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/machine"
	corev1 "k8s.io/api/core/v1"
)

func TestMain(m *testing.M) { cluster.Main(m) }

// A soak is a node under load.
type soak struct {
	*testing.T
	c       *cluster.Cluster
	n       *cluster.Node
	ns      string
	began   time.Time
	sixth   time.Time // the agent is killed from then on
	half    time.Time // the agent runs without restarts from then on
	life    int
	round   int
	random  *rand.Rand
	filled  int // number of MiB that pods have written
	samples []Sample
}

// filling is the number of MiB with which a pod fills its volume.
const filling = 32

// TestSoak checks that no resource usage of a node grows over many rounds of work.
func TestSoak(t *testing.T) {
	how := os.Getenv("ISLET_SOAK")
	if how == "" {
		t.Skip("a node is soaked by make soak")
	}
	d, err := time.ParseDuration(how)
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("ISLET_SOAK_SEED"); s != "" {
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("ISLET_SOAK_SEED=%d", seed)
	s := &soak{T: t, c: cluster.Start(t), began: time.Now(), random: rand.New(rand.NewPCG(seed, 0))}
	s.sixth, s.half = s.began.Add(d/6), s.began.Add(d/2)
	s.n, s.ns = s.c.Node(t, ""), s.c.Namespace(t)
	s.n.Run("sh", "-c", fmt.Sprintf(
		"cd %s && truncate -s 400M img && mkfs.ext4 -q -m 0 img && mkdir -p new state && mount -o loop img new && cp -a state/. new/ && umount new && mount -o loop img state", s.n.Disk))
	defer s.report()
	for i := range 3 {
		s.n.Write(fmt.Sprintf("manifests/static%d.yaml", i),
			fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: static%d}\nspec:\n  containers: [{name: c, image: %q, imagePullPolicy: Never, args: [sleep]}]\n", i, machine.Image))
	}
	s.n.Join()
	var names []string
	for i := range 7 {
		names = append(names, fmt.Sprint("stays", i))
		s.c.Apply(t, pod(s.ns, names[i], "", "", "sleep"))
	}
	before := s.c.AwaitReady(t, s.ns, names...)
	for !t.Failed() && time.Since(s.began) < d {
		s.work()
		s.sample()
	}
	for name, p := range s.c.AwaitReady(t, s.ns, names...) {
		if c := p.Status.ContainerStatuses[0]; p.UID != before[name].UID || c.RestartCount > 0 ||
			c.ContainerID != before[name].Status.ContainerStatuses[0].ContainerID {
			t.Errorf("the container of pod %s has changed: %+v", name, c)
		}
	}
	grown, err := Growth(s.samples, allSeries)
	if err != nil {
		t.Error(err)
	}
	for _, g := range grown {
		t.Error("grown: ", g)
	}
}

// pod returns a pod with one container that runs podtool. The spec and the container can have additional fields, one per line.
func pod(ns, name, spec, container string, args ...string) string {
	in := func(by, lines string) string {
		if lines == "" {
			return ""
		}
		return by + strings.ReplaceAll(strings.TrimSpace(lines), "\n", "\n"+by) + "\n"
	}
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: %s}\nspec:\n  terminationGracePeriodSeconds: 2\n%s  containers:\n  - name: c\n    image: %s\n    imagePullPolicy: Never\n    args: [\"%s\"]\n%s---\n",
		name, ns, in("  ", spec), machine.Image, strings.Join(args, `", "`), in("    ", container))
}

// work runs a round: it creates pods, causes a random event and deletes the pods.
func (s *soak) work() {
	s.round++
	name := func(what string) string { return fmt.Sprintf("%s-%d", what, s.round) }
	yaml := pod(s.ns, name("volumes"),
		"volumes:\n- {name: scratch, emptyDir: {}}\n- {name: settings, configMap: {name: kube-root-ca.crt}}\ninitContainers:\n- {name: side, image: \""+machine.Image+"\", imagePullPolicy: Never, restartPolicy: Always, args: [sleep]}",
		"volumeMounts: [{name: scratch, mountPath: /scratch}, {name: settings, mountPath: /settings}]\nreadinessProbe: {exec: {command: [/podtool, ls, /settings]}, periodSeconds: 1}", "sleep") +
		pod(s.ns, name("resized"), "", `resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 100m, memory: 32Mi}}`, "sleep") +
		pod(s.ns, name("web"), "", "readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}", "serve", ":8080")
	s.c.Apply(s.T, yaml+pod(s.ns, name("crashes"), "", "", "exit", "3")+pod(s.ns, name("ends"), "restartPolicy: Never", "", "exit", "0"))
	s.c.AwaitReady(s.T, s.ns, name("volumes"), name("resized"), name("web"))
	s.c.AwaitPod(s.T, s.ns, name("ends"), "to succeed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	s.c.AwaitPod(s.T, s.ns, name("crashes"), "to have crashed", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount > 0
	})
	s.happens(name)
	s.c.Kubectl(s.T, "-n", s.ns, "delete", "pod", "--wait=true", name("volumes"), name("resized"), name("web"), name("crashes"), name("ends"))
	s.n.WaitPods("the node to have its ten pods again", func(pods map[string]machine.Pod) bool {
		for _, p := range pods {
			if !p.Ready() {
				return false
			}
		}
		return len(pods) == 10
	})
}

// happens causes a random event for the pods of a round or for the node.
func (s *soak) happens(name func(string) string) {
	what := []func(){
		func() {
			s.c.Kubectl(s.T, "-n", s.ns, "patch", "pod", name("resized"), "--subresource=resize", "-p", `{"spec":{"containers":[{"name":"c","resources":{"requests":{"memory":"24Mi"},"limits":{"memory":"48Mi"}}}]}}`)
			s.c.AwaitPod(s.T, s.ns, name("resized"), "to be resized", func(p *corev1.Pod) bool {
				r := p.Status.ContainerStatuses[0].Resources
				return r != nil && r.Limits.Memory().Value() == 48<<20
			})
		},
		func() {
			for range 5 {
				s.c.Kubectl(s.T, "-n", s.ns, "exec", name("web"), "--", "/podtool", "env")
				s.c.Kubectl(s.T, "-n", s.ns, "logs", name("crashes"))
			}
		},
		func() {
			s.n.Cut(s.T)
			s.crash(s.c.AwaitPod(s.T, s.ns, name("web"), "to be there", func(*corev1.Pod) bool { return true }))
			s.n.WaitPods("the pod to run again", func(pods map[string]machine.Pod) bool {
				p := pods[name("web")]
				return p.Ready() && p.Status.ContainerStatuses[0].RestartCount > 0
			})
			s.n.Restore(s.T)
			s.c.AwaitNode(s.T, s.n.Name, "to be ready", cluster.NodeReady)
		},
		func() { s.n.Flap(s.T, 5, time.Second, time.Second) },
		func() {
			s.c.Apply(s.T, pod(s.ns, name("fills"), "restartPolicy: Never\nvolumes: [{name: v, emptyDir: {sizeLimit: 4Mi}}]", "volumeMounts: [{name: v, mountPath: /v}]", "fill", "/v/file", strconv.Itoa(filling)))
			s.filled += filling
			s.c.AwaitPod(s.T, s.ns, name("fills"), "to be evicted", func(p *corev1.Pod) bool { return p.Status.Reason == "Evicted" })
			s.c.Kubectl(s.T, "-n", s.ns, "delete", "pod", "--wait=true", name("fills"))
		},
	}
	what = append(what, func() { s.full(name) })
	// The agent is restarted in every other round, so that its leftovers add up in a short test too. On a slow machine the restarts
	// continue until there are enough of them.
	now, enough := time.Now(), s.life >= minRestarts
	if s.round%2 == 0 && s.round > minSamples/2 && now.After(s.sixth) && (now.Before(s.half) || !enough) {
		what = []func(){s.restart(s.n.Kill), s.restart(s.n.Stop)}
	}
	what[s.random.IntN(len(what))]()
}

// full fills the disk that contains the images, the containers and the database. Meanwhile a container ends and a new pod is created. The
// disk stays full until the new pod runs, but for at most ten seconds. Then all pods must become ready.
func (s *soak) full(name func(string) string) {
	s.n.Run("sh", "-c", fmt.Sprintf("! cat /dev/zero >%s/state/filler 2>/dev/null", s.n.Disk))
	s.crash(s.c.AwaitPod(s.T, s.ns, name("web"), "to be there", func(*corev1.Pod) bool { return true }))
	s.c.Apply(s.T, pod(s.ns, name("late"), "", "", "sleep"))
	for late := time.Now().Add(10 * time.Second); time.Now().Before(late) &&
		!strings.Contains(s.c.Kubectl(s.T, "-n", s.ns, "get", "pod", name("late")), "Running"); {
		cluster.Pass(time.Second)
	}
	s.n.Run("rm", s.n.Disk+"/state/filler")
	s.c.AwaitReady(s.T, s.ns, name("late"), name("web"))
	s.c.AwaitNode(s.T, s.n.Name, "to be ready", cluster.NodeReady)
	s.c.Kubectl(s.T, "-n", s.ns, "delete", "pod", "--wait=true", name("late"))
}

func (s *soak) restart(end func()) func() {
	return func() {
		end()
		s.n.Start()
		s.life++
		s.c.AwaitNode(s.T, s.n.Name, "to be ready", cluster.NodeReady)
	}
}

// crash kills the processes of a pod.
func (s *soak) crash(p *corev1.Pod) {
	for pid := range s.n.ContainerProcesses() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err == nil && bytes.Contains(b, []byte(p.UID)) {
			syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it may have ended
		}
	}
}

const mib = 1 << 20

// sample measures all series.
func (s *soak) sample() {
	v := map[string]float64{}
	for _, p := range s.n.PSS() {
		switch p.What {
		case "agent":
			v["agent, PSS"] = p.MiB
		case "shims":
			v["shims, PSS"] = p.MiB
		}
	}
	for name, mebibytes := range s.n.Anonymous() {
		v[name+", anonymous"] = mebibytes
	}
	for pid := range s.n.Processes() {
		v["processes"]++
		list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		v["descriptors"] += float64(len(list))
	}
	v["cgroups"], v["mounts"], v["links"] = float64(len(s.n.Cgroups())), float64(len(s.n.Mounts())), float64(len(s.n.Links()))
	for _, dir := range []string{"state", "kubelet", "logs"} {
		filepath.WalkDir(filepath.Join(fmt.Sprintf("/proc/%d/root", s.n.Pid()), s.n.Disk, dir),
			func(path string, d fs.DirEntry, err error) error { //nolint:errcheck // what goes meanwhile is not counted
				if err != nil {
					return nil
				}
				v["files of the node"]++
				if info, err := d.Info(); err == nil && strings.HasPrefix(d.Name(), "islet.db") {
					v["database"] += float64(info.Size()) / mib
				}
				return nil
			})
	}
	v["written"] = float64(s.n.WrittenBytes())/mib - float64(s.filled) // the writes of pods are counted with their shim
	for line := range strings.Lines(s.c.Kubectl(s.T, "get", "--raw", "/api/v1/nodes/"+s.n.Name+"/proxy/metrics")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		f, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "go_goroutines":
			v["goroutines"] = f
		case "go_memstats_heap_inuse_bytes":
			v["heap in use"] = f / mib
		}
	}
	for _, x := range allSeries {
		if v[x.Name] == 0 {
			s.Fatalf("no value for %s", x.Name)
		}
	}
	s.samples = append(s.samples, Sample{Seconds: time.Since(s.began).Seconds(), Life: s.life, Values: v})
}

// report writes the samples and the chart to the directory ISLET_SOAK_DIR.
func (s *soak) report() {
	var table, picture bytes.Buffer
	if err := Write(&table, s.samples, allSeries); err != nil {
		s.Error(err)
	}
	Plot(&picture, s.samples, allSeries)
	dir := os.Getenv("ISLET_SOAK_DIR")
	for name, b := range map[string]*bytes.Buffer{"samples.csv": &table, "soak.svg": &picture} {
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644); err != nil {
			s.Error(err)
		}
	}
	s.Logf("%d rounds, %d starts of the agent; samples.csv and soak.svg are in %s", s.round, s.life+1, dir)
}
