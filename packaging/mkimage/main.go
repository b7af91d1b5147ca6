// Command mkimage packs static programs into a container image archive in the docker-archive format, so that the demo and the tests need
// no registry. The output is reproducible.
//
//	mkimage -ref localhost/islet-demo:dev -entrypoint /demo -o demo.tar .cache/demo/demo
//	mkimage -ref localhost/islet:dev -entrypoint /islet -cmd "agent -v=2" -o islet.tar bin/islet LICENSE=doc/LICENSE
//
// A program lies in the root directory of the image. FILE=PATH puts a file elsewhere; it is executable if FILE is.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	ref := flag.String("ref", "", "reference of the image, with a tag")
	out := flag.String("o", "", "archive to write")
	entrypoint := flag.String("entrypoint", "", "program that the image runs")
	cmd := flag.String("cmd", "", "arguments of the entrypoint, separated by blanks")
	arch := flag.String("arch", runtime.GOARCH, "architecture of the programs")
	flag.Parse()
	if err := run(*ref, *out, *entrypoint, *arch, strings.Fields(*cmd), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mkimage:", err)
		os.Exit(1)
	}
}

func run(ref, out, entrypoint, arch string, cmd, files []string) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return err
	}
	if out == "" || len(files) == 0 {
		return errors.New("set -o to the archive, and name at least one program")
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		b, err := packLayer(files)
		return io.NopCloser(bytes.NewReader(b)), err
	}, tarball.WithCompressedCaching) // the layer is read several times
	if err != nil {
		return err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config = v1.Config{Env: []string{"PATH=/"}, WorkingDir: "/", Cmd: cmd}
	if entrypoint != "" {
		config.Config.Entrypoint = []string{entrypoint}
	}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return err
	}
	partial := out + ".partial" // renamed when complete, so that an importer that watches the folder never reads a part
	if err := tarball.WriteToFile(partial, tag, img); err != nil {
		return err
	}
	return os.Rename(partial, out)
}

// packLayer returns an image layer. It contains the directories that programs expect, such as /tmp, and every given file. A file FILE=PATH
// keeps the permission to execute it.
func packLayer(files []string) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	dirs := map[string]int64{"dev": 0o755, "etc": 0o755, "proc": 0o755, "sys": 0o755, "tmp": 0o1777}
	for _, f := range files {
		for dir := path.Dir(target(f)); dir != "."; dir = path.Dir(dir) {
			dirs[dir] = max(dirs[dir], 0o755)
		}
	}
	for _, d := range slices.Sorted(maps.Keys(dirs)) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: d + "/", Mode: dirs[d]}); err != nil {
			return nil, err
		}
	}
	for _, f := range files {
		source, _, placed := strings.Cut(f, "=")
		data, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		mode := int64(0o755)
		if placed {
			info, err := os.Stat(source)
			if err != nil {
				return nil, err
			}
			if info.Mode().Perm()&0o100 == 0 {
				mode = 0o644
			}
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: target(f), Mode: mode, Size: int64(len(data))}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

// target returns the path of a file in the image, relative to the root directory.
func target(file string) string {
	source, to, placed := strings.Cut(file, "=")
	if placed {
		return strings.TrimPrefix(path.Clean("/"+to), "/")
	}
	return filepath.Base(source)
}
