// Command tool contains the programs that the images of the CRI validation suite need in addition
// to busybox. It also contains the registry that serves the images. The name by which it is called,
// or the first argument, selects the program:
//
//	nginx, httpd "master process" PORT   a web server, with a pid file
//	nnp                                  prints its effective user
//	pause                                waits
//	tool registry ADDRESS DIR            serves the images in DIR
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	args := os.Args
	switch name := filepath.Base(args[0]); {
	case name == "nginx" || name == "httpd":
		check(os.WriteFile("/var/run/"+name+".pid", fmt.Appendln(nil, os.Getpid()), 0o644))
		fmt.Println(name, "serves")
		check(http.ListenAndServe(":"+args[len(args)-1], http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, "<title>Welcome to nginx!</title>It works!")
		})))
	case name == "nnp":
		fmt.Println("Effective uid:", os.Geteuid())
	case name == "pause":
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
		<-c
	case len(args) == 4 && args[1] == "registry":
		check(http.ListenAndServe(args[2], registry(args[3])))
	default:
		check(fmt.Errorf("unknown command %q", args))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// registry returns a handler that serves the files blobs/DIGEST and manifests/REPOSITORY/TAG of dir.
// https://distribution.github.io/distribution/spec/api/
func registry(dir string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		path := strings.TrimPrefix(q.URL.Path, "/v2/")
		if path == "" || strings.Contains(path, "..") {
			return
		}
		repo, rest, manifest := strings.Cut(path, "/manifests/")
		file := filepath.Join(dir, "blobs", filepath.Base(path))
		if manifest && !strings.HasPrefix(rest, "sha256:") {
			digest, err := os.ReadFile(filepath.Join(dir, "manifests", repo, rest))
			if err != nil {
				http.NotFound(w, q)
				return
			}
			file = filepath.Join(dir, "blobs", string(digest))
		}
		if manifest {
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		}
		w.Header().Set("Docker-Content-Digest", filepath.Base(file))
		http.ServeFile(w, q, file)
	})
}
