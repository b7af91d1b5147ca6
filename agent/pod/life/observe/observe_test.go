package observe

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/runtime/cri"
)

// This type is a fake runtime. The test sets its sandboxes and containers.
type table struct {
	cri.Runtime
	mu         sync.Mutex
	sandboxes  []*api.PodSandboxStatus
	containers []*api.ContainerStatus
	down       error
	read       int // calls of ContainerStatus
	listed     int // calls of ListPodSandbox
}

func (r *table) reads() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listed
}

func (r *table) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *table) ListPodSandbox(_ context.Context, req *api.ListPodSandboxRequest) (*api.ListPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listed++
	out := &api.ListPodSandboxResponse{}
	for _, s := range r.sandboxes {
		if uid, ok := req.Filter.LabelSelector[keys.PodUID]; !ok || s.Labels[keys.PodUID] == uid {
			out.Items = append(out.Items, &api.PodSandbox{Id: s.Id, State: s.State, Labels: s.Labels})
		}
	}
	return out, r.down
}

func (r *table) ListContainers(_ context.Context, req *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &api.ListContainersResponse{}
	for _, c := range r.containers {
		if uid, ok := req.Filter.LabelSelector[keys.PodUID]; !ok || c.Labels[keys.PodUID] == uid {
			out.Containers = append(out.Containers, &api.Container{Id: c.Id, PodSandboxId: "s", State: c.State, Labels: c.Labels})
		}
	}
	return out, r.down
}

func (r *table) PodSandboxStatus(_ context.Context, req *api.PodSandboxStatusRequest) (*api.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sandboxes {
		if s.Id == req.PodSandboxId {
			return &api.PodSandboxStatusResponse{Status: s}, nil
		}
	}
	return nil, errdefs.ErrNotFound
}

func (r *table) ContainerStatus(_ context.Context, req *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read++
	for _, c := range r.containers {
		if c.Id == req.ContainerId {
			return &api.ContainerStatusResponse{Status: &api.ContainerStatus{Id: c.Id, Metadata: c.Metadata, User: c.User, State: c.State, StartedAt: c.StartedAt, FinishedAt: c.FinishedAt, ExitCode: c.ExitCode, Reason: c.Reason,
				Labels: c.Labels, Annotations: c.Annotations, Image: c.Image, Mounts: c.Mounts, LogPath: c.LogPath, StopSignal: c.StopSignal}}, nil
		}
	}
	return nil, errdefs.ErrNotFound
}

// An eventRuntime is a table that sends events too.
type eventRuntime struct {
	*table
	events chan error // nil: pod u1 has changed; otherwise the stream breaks
}

func (r eventRuntime) ContainerEvents(ctx context.Context, handle func(*api.ContainerEventResponse)) error {
	for {
		select {
		case err := <-r.events:
			if err != nil {
				return err
			}
			handle(&api.ContainerEventResponse{PodSandboxStatus: &api.PodSandboxStatus{Metadata: &api.PodSandboxMetadata{Uid: "u1"}}})
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func labels(uid string) map[string]string { return map[string]string{keys.PodUID: uid} }

func aTable() *table {
	return &table{
		sandboxes: []*api.PodSandboxStatus{
			{Id: "s", Metadata: &api.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u1", Attempt: 2}, Labels: labels("u1"), CreatedAt: 5e9,
				Annotations: map[string]string{keys.Started: "1234", keys.ConfigSource: "file", keys.SpecHash: "abc"},
				Network:     &api.PodSandboxNetworkStatus{Ip: "10.0.0.7", AdditionalIps: []*api.PodIP{{Ip: "fd00::7"}}}},
			{Id: "foreign", Metadata: &api.PodSandboxMetadata{}},
		},
		containers: []*api.ContainerStatus{{Id: "c", Metadata: &api.ContainerMetadata{Name: "app", Attempt: 3}, State: api.ContainerState_CONTAINER_RUNNING, StartedAt: 6e9,
			Labels: labels("u1"), Annotations: map[string]string{keys.Streak: "4", keys.ContainerHash: "8e45cbd0"}, User: &api.ContainerUser{Linux: &api.LinuxContainerUser{Uid: 7, Gid: 8, SupplementalGroups: []int64{9}}}, Image: &api.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "app:1"}}},
	}
}

// run starts an observer. It returns the observer and the channel of its changes.
func run(t *testing.T, r cri.Runtime) (*Observer, chan types.UID) {
	changes := make(chan types.UID, 100)
	o := New(Config{Root: t.TempDir(), Runtime: r, Changed: func(uid types.UID) { changes <- uid }, Log: slog.New(slog.DiscardHandler)})
	if err := o.Relist(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); o.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return o, changes
}

func TestView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _ := run(t, aTable())
		seen := o.Pod("u1")
		sb, c := seen.Sandboxes[0], seen.Containers[0]
		if sb.ID != "s" || !sb.Ready || sb.Attempt != 2 || sb.Source != "file" || !sb.Started.Equal(time.Unix(1234, 0)) ||
			len(sb.IPs) != 2 || sb.Name != "web" || sb.Hash != "abc" {
			t.Errorf("%+v", sb)
		}
		if c.Name != "app" || c.State != plan.Running || c.Streak != 4 || c.Attempt != 3 || c.Image != "app:1" || c.Hash != "8e45cbd0" ||
			!c.FinishedAt.IsZero() || c.SandboxID != "s" {
			t.Errorf("%+v", c)
		}
		if u := c.User; u == nil || u.UID != 7 || u.GID != 8 || len(u.Groups) != 1 || u.Groups[0] != 9 {
			t.Errorf("user %+v", u)
		}
		if uids := o.UIDs(); len(uids) != 1 || uids[0] != "u1" {
			t.Errorf("pods %v", uids)
		}
	})
}

// TestEvents checks that each event causes one read. An object that cannot have changed is not read again.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := eventRuntime{aTable(), make(chan error)}
		o, changes := run(t, r)
		<-changes
		r.events <- nil
		synctest.Wait()
		if len(changes) > 0 || r.read != 1 {
			t.Errorf("no pod changed, but %d changes were reported and %d statuses read", len(changes), r.read)
		}
		r.change(func() { r.containers[0].State = api.ContainerState_CONTAINER_EXITED })
		r.events <- nil
		<-changes
		if o.Pod("u1").Containers[0].State != plan.Exited {
			t.Error("the view is old")
		}
		r.change(func() { r.containers, r.sandboxes = nil, nil })
		r.events <- nil
		<-changes
		if len(o.UIDs()) > 0 {
			t.Error("the pod was not removed")
		}
	})
}

// TestReasonComesLate checks a container whose exit reason becomes available after its exit, without an event. The observer reads the
// container up to two more times until the reason is final.
func TestReasonComesLate(t *testing.T) {
	t.Run("soon", func(t *testing.T) { reasonComes(t, 0, rereadAfter[0]) })
	t.Run("late", func(t *testing.T) { reasonComes(t, 5*time.Second, rereadAfter[1]) })
}

func reasonComes(t *testing.T, after, within time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		r := eventRuntime{aTable(), make(chan error)}
		o, changes := run(t, r)
		<-changes
		message := filepath.Join(o.cfg.Root, "pods/u1/containers/app/3")
		if err := errors.Join(os.MkdirAll(filepath.Dir(message), 0o700), os.WriteFile(message, []byte("bye"), 0o600)); err != nil {
			t.Fatal(err)
		}
		r.change(func() {
			c := r.containers[0]
			c.State, c.ExitCode, c.Reason, c.FinishedAt = api.ContainerState_CONTAINER_EXITED, 137, "Error", time.Now().UnixNano()
			c.Annotations[keys.MessagePath], c.Mounts = "/m", []*api.Mount{{ContainerPath: "/m", HostPath: message}}
		})
		r.events <- nil
		<-changes
		if o.Pod("u1").Containers[0].Reason != "Error" {
			t.Errorf("the observed exit is %+v", o.Pod("u1").Containers[0])
		}
		began := time.Now()
		time.Sleep(after)
		r.change(func() { r.containers[0].Reason = "OOMKilled" })
		if err := os.Remove(message); err != nil { // the pod is being removed
			t.Fatal(err)
		}
		<-changes
		if c := o.Pod("u1").Containers[0]; c.Reason != "OOMKilled" || c.Message != "bye" || time.Since(began) > within {
			t.Errorf("after %v the observed exit is %+v", time.Since(began), c)
		}
		before := r.read
		time.Sleep(time.Minute)
		r.events <- nil
		synctest.Wait()
		if len(changes) > 0 || r.read != before {
			t.Errorf("%d more changes, %d more readings", len(changes), r.read-before)
		}
	})
}

// TestLostEvents checks that the observer lists all pods soon after the event stream breaks. If there is no event, it lists them after five
// minutes.
func TestLostEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := eventRuntime{aTable(), make(chan error)}
		_, changes := run(t, r)
		<-changes
		began := time.Now()
		r.change(func() { r.containers[0].State = api.ContainerState_CONTAINER_EXITED })
		r.events <- errors.New("overrun")
		<-changes
		if time.Since(began) > resubscribeAfter {
			t.Errorf("took %v", time.Since(began))
		}
		r.change(func() { r.sandboxes[0].State = api.PodSandboxState_SANDBOX_NOTREADY })
		<-changes
		if time.Since(began) > relistWithEvents {
			t.Errorf("took %v", time.Since(began))
		}
	})
}

// TestChangesBeforeTheEvents checks that the observer finds changes that happened before its event subscription was active. This applies to
// the first subscription and to a new one after a break.
func TestChangesBeforeTheEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := eventRuntime{aTable(), make(chan error)}
		_, changes := run(t, r)
		<-changes
		began := time.Now()
		r.change(func() { r.containers[0].State = api.ContainerState_CONTAINER_EXITED })
		<-changes
		if time.Since(began) > activeAfter {
			t.Errorf("at the start it took %v", time.Since(began))
		}
		r.events <- errors.New("overrun")
		time.Sleep(resubscribeAfter)
		synctest.Wait() // all pods have been listed, but the subscription may not be active
		began = time.Now()
		r.change(func() { r.sandboxes[0].State = api.PodSandboxState_SANDBOX_NOTREADY })
		<-changes
		if time.Since(began) > activeAfter {
			t.Errorf("after a break it took %v", time.Since(began))
		}
	})
}

// TestRelist checks that a runtime without events is listed frequently. While the runtime is down, the observer keeps its views.
func TestRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := aTable()
		o, changes := run(t, r)
		<-changes
		r.change(func() { r.down = errors.New("down") })
		time.Sleep(time.Minute)
		if len(o.Pod("u1").Containers) != 1 || len(changes) > 0 {
			t.Error("the view was lost with the connection")
		}
		r.change(func() { r.down, r.containers = nil, nil })
		began := time.Now()
		<-changes
		if time.Since(began) > relistWithoutEvents || len(o.Pod("u1").Containers) != 0 {
			t.Errorf("took %v", time.Since(began))
		}
	})
}

// TestSync checks that the kubelet option syncFrequency sets the interval at which a runtime with events is listed.
func TestSync(t *testing.T) {
	for sync, want := range map[time.Duration]time.Duration{0: relistWithEvents, time.Minute: relistWithEvents, 10 * time.Second: 50 * time.Second} {
		if o := New(Config{Runtime: withEvents{}, Sync: sync}); o.cfg.Relist != want {
			t.Errorf("%v: %v", sync, o.cfg.Relist)
		}
	}
	if o := New(Config{Sync: time.Hour}); o.cfg.Relist != relistWithoutEvents {
		t.Errorf("without events: %v", o.cfg.Relist)
	}
}

type withEvents struct {
	cri.Runtime
	cri.Events
}

func TestTerminationMessage(t *testing.T) {
	root := t.TempDir()
	d := filepath.Join(root, "pods", "u1", "containers", "app")
	if err := os.MkdirAll(d, 0o700); err != nil {
		t.Fatal(err)
	}
	file := func(name, content string) string {
		p := filepath.Join(d, name)
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	fifo := filepath.Join(d, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", d+"/link"); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for range 500 {
		lines.WriteString("2026-01-01T00:00:00Z stdout F a line of the log\n")
	}
	short := "2026-01-01T00:00:00Z stderr F one\n2026-01-01T00:00:00Z stderr P tw\n2026-01-01T00:00:00Z stderr F o\n"
	for _, tt := range []struct {
		name, log, policy, out string
		code                   int32
		want                   string
	}{
		{"written", file("a", "bye"), "File", "", 1, "bye"},
		{"nothing written", file("b", ""), "File", file("l", short), 1, ""},
		{"from the log", file("c", ""), "FallbackToLogsOnError", file("l", short), 1, "one\ntwo\n"},
		{"a line without its end", file("g", ""), "FallbackToLogsOnError", file("u", short+"2026-01-01T00:00:00Z stdout P DONE\n"), 1, "one\ntwo\nDONE"},
		{"not after success", file("d", ""), "FallbackToLogsOnError", file("l", short), 0, ""},
		{"long", file("e", strings.Repeat("x", 9000)), "File", "", 0, strings.Repeat("x", maxMessage)},
		{"not text", file("f", "a\xffb"), "File", "", 0, "ab"},
		{"a link", d + "/link", "File", "", 0, ""},
		{"a pipe", fifo, "File", "", 0, ""},
		{"gone", d + "/none", "FallbackToLogsOnError", d + "/none", 1, ""},
	} {
		st := &api.ContainerStatus{Metadata: &api.ContainerMetadata{Name: "app"}, Labels: labels("u1"), ExitCode: tt.code, LogPath: tt.out, Mounts: []*api.Mount{{ContainerPath: "/t", HostPath: tt.log}},
			Annotations: map[string]string{keys.MessagePath: "/t", keys.MessagePolicy: tt.policy}}
		if got := terminationMessage(root, st); got != tt.want {
			t.Errorf("%s: %.60q (%d bytes)", tt.name, got, len(got))
		}
	}
	st := &api.ContainerStatus{ExitCode: 1, LogPath: file("long", lines.String()), Annotations: map[string]string{keys.MessagePolicy: "FallbackToLogsOnError"}}
	if got := terminationMessage(root, st); len(got) != maxMessageLines*len("a line of the log\n") || !strings.HasPrefix(got, "a line") {
		t.Errorf("%d bytes of a long log: %.40q", len(got), got)
	}
}

// TestMessageOfALogBehindSymlink checks that a pod that can write to the directory of all logs cannot get the lines of a file elsewhere as
// its termination message.
func TestMessageOfALogBehindSymlink(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	log := filepath.Join(root, "pods/ns_web_u1/c/0.log")
	line := []byte("2026-01-01T00:00:00Z stdout F bye\n")
	if err := errors.Join(os.MkdirAll(filepath.Dir(log), 0o700), os.WriteFile(log, line, 0o600)); err != nil {
		t.Fatal(err)
	}
	st := &api.ContainerStatus{ExitCode: 1, LogPath: log, Annotations: map[string]string{keys.MessagePolicy: "FallbackToLogsOnError"}}
	if got := terminationMessage(root, st); got != "bye\n" {
		t.Errorf("%q", got)
	}
	for i, dir := range []string{filepath.Dir(log), filepath.Dir(filepath.Dir(log))} {
		to := filepath.Join(outside, strconv.Itoa(i))
		if err := errors.Join(os.Rename(dir, to), os.Symlink(to, dir)); err != nil {
			t.Fatal(err)
		}
		if got := terminationMessage(root, st); got != "" {
			t.Errorf("%s is a symlink: %q", dir, got)
		}
		if err := errors.Join(os.Remove(dir), os.Rename(to, dir)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTerminationMessageIsNotInAVolume checks that only the node's own file is opened, whatever a pod mounts at the path of its termination
// log. The server of a volume may never answer.
func TestTerminationMessageIsNotInAVolume(t *testing.T) {
	root, own := t.TempDir(), "pods/u1/containers/app"
	volume := filepath.Join(t.TempDir(), own)
	for dir, text := range map[string]string{filepath.Join(root, own): "own", volume: "volume", filepath.Join(root, "volume"): "volume"} {
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "3"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		sources []string
		want    string
	}{
		"the log above a volume": {[]string{filepath.Join(root, "volume/3"), filepath.Join(root, own, "3")}, "own"},
		"the log first":          {[]string{filepath.Join(root, own, "3"), filepath.Join(root, "volume/3")}, "own"},
		"only a volume":          {[]string{filepath.Join(root, "volume/3")}, ""},
		"named like the log":     {[]string{filepath.Join(volume, "4")}, ""},
		"another container":      {[]string{filepath.Join(root, "pods/u1/containers/other/3")}, ""},
		"a directory":            {[]string{filepath.Join(root, own) + "/.."}, ""},
	} {
		st := &api.ContainerStatus{Metadata: &api.ContainerMetadata{Name: "app"}, Labels: labels("u1"), LogPath: "/none",
			Annotations: map[string]string{keys.MessagePath: "/t", keys.MessagePolicy: "File"}}
		for _, path := range tt.sources {
			st.Mounts = append(st.Mounts, &api.Mount{ContainerPath: "/t", HostPath: path})
		}
		if got := terminationMessage(root, st); got != tt.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestFacts checks that the observer reads the values that the agent has stored with a container. Invalid values are ignored.
func TestFacts(t *testing.T) {
	r := &table{}
	pod := map[string]string{keys.PodUID: "u"}
	r.containers = []*api.ContainerStatus{
		{Id: "a", Metadata: &api.ContainerMetadata{Name: "a"}, Labels: pod, StopSignal: api.Signal_SIGNAL_SIGRTMINPLUS3,
			Annotations: map[string]string{keys.Streak: "2", keys.Round: "3", keys.PostStart: "true", keys.ContainerScheduler: "FIFO priority=1"}},
		{Id: "b", Metadata: &api.ContainerMetadata{Name: "b"}, Labels: pod,
			Annotations: map[string]string{keys.Streak: "-2", keys.Round: "99999999999"}},
	}
	o := New(Config{Runtime: r, Changed: func(types.UID) {}, Log: slog.New(slog.DiscardHandler)})
	if err := o.Relist(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := o.Pod("u").Containers
	if len(c) != 2 || c[0].Streak != 2 || c[0].Round != 3 || !c[0].PostStart || c[0].StopSignal != "SIGRTMIN+3" ||
		c[0].Scheduler != "FIFO priority=1" {
		t.Errorf("a: %+v", c)
	}
	if c[1].Streak != 0 || c[1].Round != 0 || c[1].PostStart || c[1].StopSignal != "" {
		t.Errorf("b: %+v", c[1])
	}
	if !o.HasContainer("a") || o.HasContainer("c") {
		t.Error("the known containers differ from those of the runtime")
	}
}

// TestEventsDuringOwnCalls checks the events that arrive while the agent itself has a call in progress for the pod. The read after the call
// answers the events before it. All other events cause a read: after eventDelay if the call takes longer, at the end of the call if the
// read was earlier than the event or has failed, and at once if there is no call.
func TestEventsDuringOwnCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := eventRuntime{aTable(), make(chan error)}
		o, changes := run(t, r)
		<-changes
		time.Sleep(2 * activeAfter)
		send := func() {
			r.events <- nil
			synctest.Wait()
		}
		restarts := int64(0)
		happen := func() { // another program restarts the container, and the runtime sends an event
			restarts++
			r.change(func() {
				state := api.ContainerState_CONTAINER_EXITED
				if restarts%2 == 0 {
					state = api.ContainerState_CONTAINER_RUNNING
				}
				r.containers[0].State = state
			})
			send()
		}
		sees := func(what string, want bool) {
			t.Helper()
			synctest.Wait()
			exited := o.Pod("u1").Containers[0].State == plan.Exited
			if current := exited == (restarts%2 == 1); current != want {
				t.Errorf("%s: the view is current: %v, want %v", what, current, want)
			}
		}
		reported := func(what string, want int) {
			t.Helper()
			synctest.Wait()
			if got := len(changes); got != want {
				t.Errorf("%s: %d changes were reported, want %d", what, got, want)
			}
			for len(changes) > 0 {
				<-changes
			}
		}

		end := o.Begin("u1")
		happen()
		sees("during the call", false)
		if err := o.Refresh(t.Context(), "u1"); err != nil {
			t.Fatal(err)
		}
		sees("after the call", true)
		end()
		before := r.reads()
		time.Sleep(time.Minute)
		reported("own change", 0)
		if got := r.reads() - before; got != 0 {
			t.Errorf("%d reads after the call", got)
		}

		end = o.Begin("u1")
		happen()
		time.Sleep(eventDelay)
		sees("a long call", true)
		reported("a long call", 1)
		end()

		end, other := o.Begin("u1"), o.Begin("u1")
		if err := o.Refresh(t.Context(), "u1"); err != nil {
			t.Fatal(err)
		}
		happen()
		end()
		sees("another call is in progress", false)
		other()
		sees("an event after the read", true)
		reported("an event after the read", 1)

		end = o.Begin("u1")
		happen()
		r.change(func() { r.down = errors.New("down") })
		if err := o.Refresh(t.Context(), "u1"); err == nil {
			t.Error("no error of the runtime")
		}
		r.change(func() { r.down = nil })
		end()
		sees("the read failed", true)
		reported("the read failed", 1)

		happen()
		sees("no call", true)
		reported("no call", 1)
		if len(o.own) > 0 {
			t.Errorf("calls left: %v", o.own)
		}
	})
}
