package ctrd_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/ctrd"
)

// This environment variable makes the test program an agent that the test kills. Its value lists the directories of the node.
const victimEnv = "ISLET_TEST_VICTIM"

// victim runs, stops and removes pods at random until its process is killed.
func victim() {
	part := strings.Split(os.Getenv(victimEnv), ":")
	n := &node{dir: part[0], run: part[1], cgroup: part[2], shimPods: 2, shim: part[3], network: &network{up: map[string]bool{}}}
	if part[4] != "" {
		n.handlers, n.handler = map[string]ctrd.Handler{taskHandler: {Shim: part[4]}}, taskHandler
	}
	if err := n.open(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})), nil); err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	fmt.Println("ready")
	var g sync.WaitGroup
	for i := 1; i <= 4; i++ { // pod 0 is never stopped
		g.Go(func() {
			for {
				if err := n.churn(i); err != nil {
					fmt.Println("failed", err)
					os.Exit(1)
				}
			}
		})
	}
	g.Wait()
}

// churn runs a pod with two containers and then stops or removes the pod. It may first remove some of the containers.
func (n *node) churn(i int) error {
	ctx, cfg := context.Background(), n.podConfig(i)
	if i%2 == 0 {
		cfg.Linux.SecurityContext.NamespaceOptions.Pid = api.NamespaceMode_POD
	}
	s, err := n.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Config: cfg, RuntimeHandler: n.handler})
	if err != nil {
		return err
	}
	for k, args := range [][]string{{"ignore"}, {"exit", "3"}} {
		c := containerConfig(fmt.Sprint("c", k), args...)
		c.Linux.SecurityContext.NamespaceOptions = cfg.Linux.SecurityContext.NamespaceOptions
		c.Metadata.Attempt = rand.Uint32()
		r, err := n.CreateContainer(ctx, &api.CreateContainerRequest{PodSandboxId: s.PodSandboxId, SandboxConfig: cfg, Config: c})
		if err != nil {
			return err
		}
		if _, err := n.StartContainer(ctx, &api.StartContainerRequest{ContainerId: r.ContainerId}); err != nil {
			return err
		}
		if rand.IntN(2) == 0 {
			if _, err := n.RemoveContainer(ctx, &api.RemoveContainerRequest{ContainerId: r.ContainerId}); err != nil {
				return err
			}
		}
	}
	if rand.IntN(2) == 0 {
		_, err = n.StopPodSandbox(ctx, &api.StopPodSandboxRequest{PodSandboxId: s.PodSandboxId})
	} else {
		_, err = n.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{PodSandboxId: s.PodSandboxId})
	}
	return err
}

// TestKilledAgain kills the agent at random moments while pods start and end. Pods that are not stopped must keep running. No pod may be
// lost, and no resource may be left at the end.
func TestKilledAgain(t *testing.T) { testKilledAgain(t, newNode(t, 2), 5) }

func testKilledAgain(t *testing.T, n *node, rounds int) {
	_, witness := n.runPod(t, 0, "wait")
	pid := n.pid(t, witness)
	n.stop(t)
	if s := os.Getenv("ISLET_TEST_ROUNDS"); s != "" {
		rounds, _ = strconv.Atoi(s)
	}
	for round := range rounds {
		n.killVictim(t, round, time.Duration(rand.Int64N(int64(600*time.Millisecond))))
	}
	n.start(t)
	if st := n.status(t, witness); st.State != api.ContainerState_CONTAINER_RUNNING || n.pid(t, witness) != pid {
		t.Errorf("the container of the untouched pod: %v", st)
	}
	list, err := n.ListContainers(t.Context(), &api.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list.Containers {
		if st := n.status(t, c.Id); c.Metadata.Name == "c1" && st.State == api.ContainerState_CONTAINER_RUNNING {
			eventually(t, "the end of a short container is recorded", func() bool {
				st := n.status(t, c.Id)
				return st.State == api.ContainerState_CONTAINER_EXITED && st.ExitCode == 3
			})
		}
	}
}

// killVictim starts an agent and kills it after the given time.
func (n *node) killVictim(t *testing.T, round int, after time.Duration) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"="+strings.Join([]string{n.dir, n.run, n.cgroup, n.shim, n.handlers[n.handler].Shim}, ":"))
	out := &lines{ready: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if round%4 != 3 { // in every fourth round, the agent may be killed during its recovery
		select {
		case <-out.ready:
		case err := <-ended:
			t.Fatalf("round %d: it ended by itself: %v\n%s", round, err, out.text())
		}
	}
	select {
	case <-time.After(after):
	case err := <-ended:
		t.Fatalf("round %d: it ended by itself: %v\n%s", round, err, out.text())
	}
	cmd.Process.Kill()
	<-ended
	if s := out.text(); strings.Contains("\n"+s, "\nfailed ") { // a line of the log begins with its time
		t.Errorf("round %d: %s", round, s)
	}
}

// A lines collects the output of the agent and signals when the agent is ready.
type lines struct {
	mu    sync.Mutex
	b     strings.Builder
	ready chan struct{}
	told  bool
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Write(p)
	if !l.told && strings.Contains(l.b.String(), "ready") {
		l.told = true
		close(l.ready)
	}
	return len(p), nil
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
