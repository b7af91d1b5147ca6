package remotedialer

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
)

// silence runs a session over a pipe, in a bubble. The server answers pings for five minutes, and then no more.
func silence(t *testing.T, check bool) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		up := make(chan *websocket.Conn, 1)
		go func() {
			r, err := http.ReadRequest(bufio.NewReader(theirs))
			if err != nil {
				t.Error(err)
				return
			}
			ws, err := (&websocket.Upgrader{}).Upgrade(&hijacker{ResponseRecorder: httptest.NewRecorder(), conn: theirs}, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			up <- ws
		}()
		node, _, err := websocket.NewClient(ours, &url.URL{Scheme: "ws", Host: "a"}, nil, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		server := <-up
		began := time.Now()
		var pings atomic.Int64
		server.SetPingHandler(func(text string) error {
			pings.Add(1)
			if time.Since(began) < 5*time.Minute {
				return server.WriteControl(websocket.PongMessage, []byte(text), time.Now().Add(time.Second))
			}
			return nil
		})
		read := make(chan struct{})
		go func() {
			defer close(read)
			for {
				if _, _, err := server.ReadMessage(); err != nil {
					return
				}
			}
		}()
		s := New(node, nil, &Budget{})
		ended := make(chan error, 1)
		go func() { ended <- s.Run(context.Background()) }()
		time.Sleep(5*time.Minute + time.Second)
		if n := pings.Load(); n < 11 || n > 13 {
			t.Errorf("%d pings in five minutes", n)
		}
		silent, limit := time.Now(), silenceLimit
		if check {
			s.Check()
			limit = checkLimit
		}
		if err := <-ended; err == nil {
			t.Error("the session has no error")
		}
		if took := time.Since(silent); took > limit {
			t.Errorf("the session has ended after %v", took)
		}
		server.Close()
		<-read
	})
}

// A hijacker is a response that gives its connection away.
type hijacker struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}
