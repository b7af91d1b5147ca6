package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// replyTimeout is the time for which a client waits for the reply to one line.
const replyTimeout = 5 * time.Second

// runRole does the work of a program in the images of docs/examples, as far as the tests of the examples need it. The first argument is
// the path of the program. The protocols of brokers and log servers are simplified: each line gets the reply "ok".
func runRole(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("role needs the path of a program")
	}
	name, args := filepath.Base(args[0]), args[1:]
	roles := map[string]func(context.Context, []string) error{
		"mosquitto": runBroker, "mosquitto_pub": publish, "fluent-bit": runShipper,
		"redis-server": runDatabase, "redis-cli": askDatabase,
		"httpd": runHTTPD, "wget": fetch, "nc": probePort, "registry": runRegistry,
		"home-assistant": runHomeAssistant, "node_exporter": runExporter,
		"ffmpeg": takePicture, "gpiomon": printDevice, "i2cget": readRegister,
		"cyclictest": func(ctx context.Context, _ []string) error { return errors.Join(cyclic("1ms", "300", ""), wait(ctx)) },
		"control":    func(ctx context.Context, _ []string) error { return eat(ctx, "45", "0s") },
		"analytics":  func(ctx context.Context, _ []string) error { return eat(ctx, "180", "0s") },
	}
	role := roles[name]
	if role == nil {
		return fmt.Errorf("no role %q", name)
	}
	return role(ctx, args)
}

func wait(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// option returns the value of an option, which is the next argument or follows a "=".
func option(args []string, name string) string {
	for i, a := range args {
		if value, ok := strings.CutPrefix(a, name+"="); ok {
			return value
		}
		if a == name && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// settings returns the first value of every key in a file of lines with a key and a value.
func settings(file string) (map[string]string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, known := all[key]; !known {
			all[key] = value
		}
	}
	return all, nil
}

// runBroker stores each line of its clients, and forwards the lines to the broker of the configured bridge.
func runBroker(ctx context.Context, args []string) error {
	conf, err := settings(option(args, "-c"))
	if err != nil {
		return err
	}
	s, err := openSpool(conf["persistence_location"])
	if err != nil {
		return err
	}
	go s.forward(ctx, conf["address"])
	return serveLines(ctx, ":"+conf["listener"], func(line string) string {
		if err := s.add(line); err != nil {
			return err.Error()
		}
		return "ok"
	})
}

func publish(_ context.Context, args []string) error {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(option(args, "-h"), "1883"), replyTimeout)
	if err != nil {
		return err
	}
	defer c.Close()
	reply, err := exchange(c, bufio.NewReader(c), option(args, "-t")+" "+option(args, "-m"))
	if err == nil && reply != "ok" {
		err = errors.New(reply)
	}
	return err
}

// runShipper stores each line that is appended to a file, and forwards the lines to a server.
func runShipper(ctx context.Context, args []string) error {
	conf, err := settings(option(args, "-c"))
	if err != nil {
		return err
	}
	s, err := openSpool(conf["storage.path"])
	if err != nil {
		return err
	}
	go s.forward(ctx, net.JoinHostPort(conf["Host"], conf["Port"]))
	at, err := readNumber(conf["DB"])
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		b, err := os.ReadFile(conf["Path"])
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for line := range bytes.Lines(b[min(at, len(b)):]) {
			if !bytes.HasSuffix(line, []byte("\n")) {
				break
			}
			at += len(line)
			if err := errors.Join(s.add(strings.TrimSpace(string(line))), writeNumber(conf["DB"], at)); err != nil {
				return err
			}
		}
		if err := waitFor(ctx, "50ms"); err != nil { // poll, because some kinds of volumes have no file events
			return err
		}
	}
	return nil
}

// serveLines passes each line of every connection to reply, and sends its result.
func serveLines(ctx context.Context, addr string, reply func(string) string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { l.Close() })
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		go func() {
			defer c.Close()
			in := bufio.NewScanner(c)
			for in.Scan() {
				fmt.Fprintln(c, reply(in.Text()))
			}
		}()
	}
}

// exchange sends a line and returns the line that is the reply.
func exchange(c net.Conn, in *bufio.Reader, line string) (string, error) {
	if err := c.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(c, line); err != nil {
		return "", err
	}
	reply, err := in.ReadString('\n')
	return strings.TrimSpace(reply), err
}

func runHTTPD(ctx context.Context, args []string) error {
	return serveHTTP(ctx, ":"+option(args, "-p"), http.FileServer(http.Dir(option(args, "-h"))))
}

func serveHTTP(ctx context.Context, addr string, handler http.Handler) error {
	s := &http.Server{Addr: addr, Handler: handler}
	context.AfterFunc(ctx, func() { s.Close() })
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func fetch(_ context.Context, args []string) error {
	c := http.Client{Timeout: replyTimeout}
	r, err := c.Get(args[len(args)-1])
	if err != nil {
		return err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = errors.New(r.Status)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(option(args, "-O"), b, 0o644)
}

func probePort(_ context.Context, args []string) error {
	if len(args) != 3 || args[0] != "-z" {
		return errors.New("usage of nc: -z HOST PORT")
	}
	c, err := net.DialTimeout("tcp", net.JoinHostPort(args[1], args[2]), replyTimeout)
	if err != nil {
		return err
	}
	return c.Close()
}

// runRegistry serves the manifests and blobs that are files below /var/lib/registry, and prints the path of each request.
func runRegistry(ctx context.Context, _ []string) error {
	files := http.FileServer(http.Dir("/var/lib/registry"))
	return serveHTTP(ctx, ":5000", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path)
		if r.URL.Path == "/v2/" {
			return
		}
		if strings.Contains(r.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		}
		files.ServeHTTP(w, r)
	}))
}

// runHomeAssistant creates its configuration if it is missing, and responds with the addresses of its network.
func runHomeAssistant(ctx context.Context, _ []string) error {
	if err := add("/config/configuration.yaml", ""); err != nil {
		return err
	}
	return serveHTTP(ctx, ":8123", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		all, err := net.InterfaceAddrs()
		fmt.Fprintln(w, all, err)
	}))
}

// runExporter responds with the names of all processes.
func runExporter(ctx context.Context, args []string) error {
	dir := option(args, "--path.procfs")
	return serveHTTP(ctx, option(args, "--web.listen-address"), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		all, err := filepath.Glob(filepath.Join(dir, "[0-9]*", "comm"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
		for _, file := range all {
			if name, err := os.ReadFile(file); err == nil { // a process may end meanwhile
				fmt.Fprintf(w, "process{name=%q} 1\n", strings.TrimSpace(string(name)))
			}
		}
		fmt.Fprintln(w, "node_processes_pids", len(all))
	}))
}

// takePicture copies the first block of a device to the file that is the last argument.
func takePicture(ctx context.Context, args []string) error {
	b, err := readBlock(option(args, "-i"))
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(args[len(args)-1], b, 0o644), wait(ctx))
}

func printDevice(ctx context.Context, args []string) error {
	b, err := readBlock(option(args, "--chip"))
	fmt.Printf("%s", b)
	return errors.Join(err, wait(ctx))
}

func readRegister(context.Context, []string) error {
	b, err := readBlock("/dev/i2c-1")
	fmt.Printf("%s", b)
	return err
}

// readBlock opens a device for reading and writing, and returns the first line of its first block.
func readBlock(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, 512)
	n, err := io.ReadFull(f, b)
	line, _, _ := bytes.Cut(b[:n], []byte("\n"))
	return append(line, '\n'), err
}

func readNumber(file string) (int, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(b))
}

func writeNumber(file string, n int) error {
	if err := os.WriteFile(file+".new", []byte(strconv.Itoa(n)), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
