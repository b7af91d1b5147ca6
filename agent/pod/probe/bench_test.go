package probe

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/probe/call"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/podtest"
)

// serveEnv is a variable that makes the test program an HTTP server. The server's CPU time is not counted for the probes.
const serveEnv = "ISLET_TEST_PROBED"

func TestMain(m *testing.M) {
	if os.Getenv(serveEnv) == "" {
		os.Exit(eventtest.Main(m, "probe"))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	go func() { io.Copy(io.Discard, os.Stdin); os.Exit(0) }() // this process ends with its parent
	http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }))
}

// This helper starts a server and returns its port.
func probed(b *testing.B) int {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	var port int
	if _, serr := fmt.Sscan(line, &port); err != nil || serr != nil {
		b.Fatal(err, serr)
	}
	return port
}

func measureCPU(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkHTTP measures the CPU usage and the memory of 100 pods that have an HTTP probe each. The CPU usage is in percent of a core.
func BenchmarkHTTP(b *testing.B) {
	for _, period := range []int32{1, 10} {
		b.Run(fmt.Sprintf("every=%ds", period), func(b *testing.B) {
			const pods = 100
			port := probed(b)
			inputs := map[types.UID]plan.Input{}
			for i := range pods {
				p := podtest.New(fmt.Sprint("p", i))
				probe := &v1.Probe{TimeoutSeconds: 1, PeriodSeconds: period, SuccessThreshold: 1, FailureThreshold: 3}
				probe.HTTPGet = &v1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt(port)}
				p.Spec.Containers[0].LivenessProbe = probe
				inputs[p.UID] = plan.Input{Want: p, Observed: plan.Observed{
					Sandboxes:  []plan.Sandbox{{ID: "s", Ready: true, IPs: []string{"127.0.0.1"}}},
					Containers: []plan.Container{{ID: p.Name, Name: "c", SandboxID: "s", State: plan.Running}}, // started before
				}}
			}
			memory := func() uint64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return m.HeapAlloc + m.StackInuse
			}
			before := memory()
			p := New(Config{
				Caller: call.New(call.Config{Version: "v1.36.3"}), Input: func(uid types.UID) plan.Input { return inputs[uid] }, Log: slog.New(slog.DiscardHandler),
				Changed: func(types.UID) {}, Events: eventtest.Sink(func(e eventtest.Event) { b.Error(strings.TrimSpace(e.Message)) }), // each succeeds
			})
			for uid := range inputs {
				p.Poke(uid)
			}
			ctx, stop := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- p.Run(ctx) }()
			for b.Loop() {
				time.Sleep(time.Duration(period) * time.Second) // each container has now been probed once
				from, began := measureCPU(b), time.Now()
				time.Sleep(max(10*time.Second, 3*time.Duration(period)*time.Second))
				b.ReportMetric(100*float64(measureCPU(b)-from)/float64(time.Since(began)), "%core")
			}
			b.ReportMetric((float64(memory())-float64(before))/1024, "KiB")
			stop()
			<-done
		})
	}
}
