// Command demo is the program in the demo pods. `demo web` serves a page with the name of the pod, the name of the node and the address of
// the pod. `demo log` writes a line every few seconds. Both commands end on SIGTERM.
package main

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

var pageTemplate = template.Must(template.New("page").Parse(`<!doctype html>
<title>islet: {{.Pod}}</title>
<style>body{font:1.1em/1.6 system-ui;margin:4em auto;max-width:36em;color:#123}td{padding:.1em 1.5em .1em 0}b{color:#07c}</style>
<h1>Hello from a pod on islet</h1>
<table>
<tr><td>pod<td><b>{{.Pod}}</b>
<tr><td>node<td><b>{{.Node}}</b>
<tr><td>address<td><b>{{.Address}}</b>
<tr><td>up since<td>{{.Since}}
</table>
`))

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("say what to do: web or log")
	}
	switch args[0] {
	case "web":
		return serveWeb(ctx, ":8080")
	case "log":
		return logLines(ctx, 5*time.Second)
	}
	return fmt.Errorf("%q is neither web nor log", args[0])
}

func serveWeb(ctx context.Context, listen string) error {
	since := time.Now().UTC().Format(time.RFC3339)
	s := &http.Server{Addr: listen, ReadHeaderTimeout: 10 * time.Second}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		address := ""
		if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			address = a.String()
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		err := pageTemplate.Execute(w, map[string]string{
			"Pod": os.Getenv("POD_NAME"), "Node": os.Getenv("NODE_NAME"), "Address": address, "Since": since,
		})
		fmt.Println(r.RemoteAddr, r.Method, r.URL.Path, err)
	})
	ended := make(chan error, 1)
	go func() { ended <- s.ListenAndServe() }()
	fmt.Println("serving on", listen)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return s.Shutdown(stop)
	}
}

func logLines(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 1; ; n++ {
		fmt.Printf("line %d from %s on %s\n", n, os.Getenv("POD_NAME"), os.Getenv("NODE_NAME"))
		select {
		case <-tick.C:
		case <-ctx.Done():
			fmt.Println("received SIGTERM")
			return nil
		}
	}
}
