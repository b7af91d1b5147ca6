package pods_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/containerfiles"
	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/api"
)

const copyURL = "http://islet" + api.PathFiles + "/default/web/nginx?path=/x&name=x"

// TestCopyHangs checks that the number of copies that wait for an unresponsive file system is limited. The server can stop even if copies
// are waiting.
func TestCopyHangs(t *testing.T) {
	const most = 8
	answer, waiting := make(chan struct{}), make(chan struct{}, 2*most)
	var ended sync.WaitGroup
	n, stop := servertest.Start(t, func(c *server.Config) {
		c.ContainerRoot = func(context.Context, string) (*containerfiles.Root, error) {
			ended.Add(1)
			defer ended.Done()
			waiting <- struct{}{}
			<-answer
			return nil, containerfiles.ErrNoRoot
		}
	})
	n.Pod("web", time.Now(), "nginx")
	client := http.Client{Transport: &http.Transport{DialContext: n.Dial}}
	request := func(ctx context.Context, method string) (int, error) {
		req, err := http.NewRequestWithContext(ctx, method, copyURL, strings.NewReader("x"))
		if err != nil {
			return 0, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range most {
		all.Go(func() { request(ctx, []string{http.MethodGet, http.MethodPost}[i%2]) })
	}
	for range most {
		<-waiting
	}
	cancel() // the clients go, but the copies still wait
	all.Wait()
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if code, err := request(t.Context(), method); code != http.StatusTooManyRequests {
			t.Errorf("%s: one more copy: code %d, %v", method, code, err)
		}
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	select {
	case <-stopped:
	case <-time.After(20 * time.Second):
		t.Error("the server waits for the copies")
	}
	close(answer)
	<-stopped
	ended.Wait()
}

// TestCopyPanics checks that a panic of a copy ends only this copy.
func TestCopyPanics(t *testing.T) {
	n, _ := servertest.Start(t, func(c *server.Config) {
		c.ContainerRoot = func(context.Context, string) (*containerfiles.Root, error) { panic("damaged") }
	})
	n.Pod("web", time.Now(), "nginx")
	client := http.Client{Transport: &http.Transport{DialContext: n.Dial}}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		req, err := http.NewRequestWithContext(t.Context(), method, copyURL, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusInternalServerError || !strings.Contains(string(body), "damaged") {
			t.Errorf("%s: code %d, %q, %v", method, resp.StatusCode, body, err)
		}
	}
}
