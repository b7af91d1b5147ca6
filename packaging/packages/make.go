package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers itself
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers itself
)

// A buildArgs contains the arguments of the command line.
type buildArgs struct {
	version, arch, from, to string
	buildTime               time.Time
}

// A packageSpec describes one package, for both kinds (deb and rpm).
type packageSpec struct {
	name, summary, text string
	depends             []string // names of the required packages, which must have the same version
	replaces            string   // the package that this package replaces, with its version
	licenses            string   // the licence of the content as an SPDX expression; empty for islet's own licence
}

const (
	release    = "1"
	homepage   = "https://github.com/islet-edge/islet"
	maintainer = "islet maintainers <maintainers@islet.dev>"
	kubernetes = "1.37.2" // version of the kubelet that islet-kubelet replaces
	cniPlugins = "1.9.1"  // version of the plugins that islet-cni replaces
)

func packageSpecs() []packageSpec {
	return []packageSpec{
		{
			name: "islet",
			licenses: "Apache-2.0 AND GPL-2.0-or-later AND (GPL-3.0-or-later WITH GCC-exception-3.1) AND " +
				"LGPL-2.1-or-later AND LGPL-2.1-only AND BSD-2-Clause AND BSD-3-Clause AND ISC AND MIT AND MPL-2.0",
			summary: "Kubernetes node in one binary for edge devices",
			text: "islet makes a machine a Kubernetes node: a kubelet with its container runtime,\n" +
				"pod network and OCI runtime in one small program, for devices with little\n" +
				"memory and a link that comes and goes. Pods come back after a reboot without\n" +
				"a network. It runs static pods alone, or joins a cluster.",
		},
		{
			name: "islet-cni", summary: "names of CNI plugins for islet's own pod network", depends: []string{"islet"},
			replaces: "kubernetes-cni " + cniPlugins,
			text: "The names bridge, host-local, loopback and portmap in /opt/cni/bin, for pod\n" +
				"networks that delegate to them. islet's program does the work. Other plugins\n" +
				"of kubernetes-cni, such as macvlan, tuning and bandwidth, are not in it.",
		},
		{
			name: "islet-kubelet", summary: "islet in the kubelet's place, for kubeadm", depends: []string{"islet"},
			replaces: "kubelet " + kubernetes,
			text: "The kubelet's name, unit and settings as kubeadm expects them, so that\n" +
				"kubeadm init, join, upgrade and reset work with islet. It serves the CRI\n" +
				"socket before there is a configuration.",
		},
	}
}

// buildPackages builds each package twice, as deb and as rpm.
func (b buildArgs) buildPackages() error {
	stage, err := os.MkdirTemp("", "islet-packages")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	for _, kind := range []string{"deb", "rpm"} {
		table, err := readTable(b.from, kind)
		if err != nil {
			return err
		}
		for _, p := range packageSpecs() {
			info, err := b.packageInfo(kind, p, table, stage)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if err := b.write(kind, info); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	return nil
}

// packageInfo returns the description of one package in the form that nfpm needs.
func (b buildArgs) packageInfo(kind string, p packageSpec, table []Entry, stage string) (*nfpm.Info, error) {
	info := &nfpm.Info{
		Name: p.name, Arch: b.archOf(kind), Platform: "linux", Version: b.version, Release: release, Section: "admin", Priority: "optional",
		Maintainer: maintainer, Vendor: "islet", Homepage: homepage, License: "Apache-2.0",
		Description: p.summary + "\n" + p.text, MTime: b.buildTime, DisableGlobbing: true,
	}
	info.RPM.BuildHost, info.RPM.Compression = "islet", "gzip:9"
	info.Deb.Compression = "gzip:9"
	if kind == "rpm" {
		info.Depends = []string{"/bin/sh"} // required before the scripts run
		info.RPM.Summary, info.RPM.Group = strings.ToUpper(p.summary[:1])+p.summary[1:], "System Environment/Daemons"
		if p.licenses != "" {
			info.License = p.licenses
		}
		info.Changelog = filepath.Join(stage, kind, p.name+".changes")
		changes := fmt.Sprintf("- semver: %q\n  date: %s\n  packager: %s\n  changes:\n"+
			"  - note: \"Release %s: see the release notes\"\n", b.version+"-"+release, b.buildTime.Format(time.RFC3339),
			maintainer, b.version)
		err := os.MkdirAll(filepath.Dir(info.Changelog), 0o755)
		if err = errors.Join(err, os.WriteFile(info.Changelog, []byte(changes), 0o644)); err != nil {
			return nil, err
		}
	}
	for _, d := range p.depends {
		if kind == "deb" {
			d += " (= " + b.version + "-" + release + ")"
		} else {
			d += " = " + b.version + "-" + release
		}
		info.Depends = append(info.Depends, d)
	}
	if name, version, ok := strings.Cut(p.replaces, " "); ok {
		info.Conflicts, info.Provides = []string{name}, []string{name + " = " + version}
		if kind == "deb" {
			info.Provides, info.Replaces = []string{name + " (= " + version + ")"}, []string{name}
		}
	}
	var err error
	if info.Contents, err = b.listContents(kind, p, table, filepath.Join(stage, kind, p.name)); err != nil {
		return nil, err
	}
	return info, b.addScripts(p.name, kind, filepath.Join(stage, kind, p.name+".scripts"), table, info)
}

// archOf returns the name that deb or rpm packages use for the architecture.
func (b buildArgs) archOf(kind string) string {
	names := map[string][2]string{"amd64": {"amd64", "x86_64"}, "arm64": {"arm64", "aarch64"}, "arm": {"armhf", "armv7hl"},
		"riscv64": {"riscv64", "riscv64"}}
	if kind == "rpm" {
		return names[b.arch][1]
	}
	return names[b.arch][0]
}

// linkTarget returns the target of a symbolic link. For a link between two top-level directories, Debian requires an absolute target, and
// rpmlint requires a relative target.
func linkTarget(kind string, e Entry) (string, error) {
	if path.Dir(e.Source) != path.Dir(e.Path) && kind != "rpm" {
		return e.Source, nil
	}
	return filepath.Rel(path.Dir(e.Path), e.Source)
}

// listContents returns the list of files in a package. Generated files are written to the stage directory.
func (b buildArgs) listContents(kind string, p packageSpec, table []Entry, stage string) (files.Contents, error) {
	var out files.Contents
	add := func(typ, source, dest string, mode fs.FileMode) {
		out = append(out, &files.Content{Source: source, Destination: dest, Type: typ,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: b.buildTime}})
	}
	made := func(typ, dest string, mode fs.FileMode, data []byte) error {
		file := filepath.Join(stage, dest)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		add(typ, file, dest, mode)
		return os.WriteFile(file, data, 0o644)
	}
	docs, doc := "/usr/share/doc/"+p.name, docType(kind)
	for _, e := range table {
		if e.Part != p.name {
			continue
		}
		source := filepath.Join(b.from, e.Source)
		switch e.Type {
		case "dir":
			add(files.TypeDir, "", e.Path, e.Mode)
		case "link":
			target, err := linkTarget(kind, e)
			if err != nil {
				return nil, err
			}
			add(files.TypeSymlink, target, e.Path, 0)
		case "doc":
			add(doc, source, e.Path, e.Mode)
		case "config":
			if kind == "deb" {
				add(files.TypeFile, source, settingsDir+e.Path, e.Mode)
				continue
			}
			add(files.TypeConfigNoReplace, source, e.Path, e.Mode)
		case "man":
			data, err := os.ReadFile(source)
			if err == nil {
				err = made(doc, e.Path+".gz", e.Mode, compressData(data))
			}
			if err != nil {
				return nil, err
			}
		default:
			data, err := os.ReadFile(source)
			if err != nil {
				return nil, err
			}
			if namesProgram(e) {
				here := bytes.ReplaceAll(data, []byte("/usr/local/bin/"), []byte("/usr/bin/"))
				if err := made(files.TypeFile, e.Path, e.Mode, here); err != nil {
					return nil, err
				}
				continue
			}
			add(files.TypeFile, source, e.Path, e.Mode)
		}
	}
	if err := made(doc, docs+"/copyright", 0o644, []byte(copyrightText(p.name))); err != nil {
		return nil, err
	}
	if kind == "deb" {
		err := b.debFiles(p.name, func(path string, data []byte) error { return made(doc, path, 0o644, data) })
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func docType(kind string) string {
	if kind == "rpm" {
		return files.TypeRPMDoc
	}
	return files.TypeFile
}

// namesProgram reports whether a file contains the path of the program. The path in a package differs from the path in the archive, so such
// a file must be changed.
func namesProgram(e Entry) bool {
	return e.Type == "init" || strings.HasSuffix(e.Path, ".service") || strings.HasSuffix(e.Path, ".conf")
}

// debFiles writes the files that only a deb has.
func (b buildArgs) debFiles(name string, made func(path string, data []byte) error) error {
	changes := fmt.Sprintf("%s (%s-%s) stable; urgency=medium\n\n  * Release %s: see the release notes.\n\n -- %s  %s\n",
		name, b.version, release, b.version, maintainer, b.buildTime.Format(time.RFC1123Z))
	if err := made("/usr/share/doc/"+name+"/changelog.Debian.gz", compressData([]byte(changes))); err != nil {
		return err
	}
	if text, err := scriptFiles.ReadFile(path.Join("lintian", name)); err == nil {
		if err := made("/usr/share/lintian/overrides/"+name, text); err != nil {
			return err
		}
	}
	return nil
}

func copyrightText(name string) string {
	copyright := "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nSource: " + homepage +
		"\n\nFiles: *\nCopyright: 2026 the islet authors\nLicense: Apache-2.0\n" +
		" The text is in /usr/share/common-licenses/Apache-2.0 on Debian, and at\n" +
		" https://www.apache.org/licenses/LICENSE-2.0.\n"
	if name == "islet" {
		copyright += "\nFiles: usr/bin/islet\nCopyright: the islet authors, and those of the Go modules in it\n" +
			"License: Apache-2.0 and others\n" +
			" The licences of the modules are beside this file, in NOTICES.gz.\n" +
			"\nFiles: usr/lib/islet/crun\n" +
			"Copyright: the authors of crun, libocispec, libseccomp, libcap, systemd, yajl, BLAKE3,\n" +
			" the GNU C library and libgcc\nLicense: GPL-2+\n" +
			" crun, statically linked with libseccomp, libsystemd and the GNU C library\n" +
			" (LGPL-2.1), libcap (BSD-3-clause or GPL-2), yajl (ISC), BLAKE3 (CC0), what\n" +
			" libocispec makes (GPL-3 with an exception) and libgcc (GPL-3 with GCC's). The\n" +
			" licences are beside this file, as LICENSE.*; the file sources names the exact\n" +
			" sources, which each release of islet has as islet-oci-sources.tar, with what\n" +
			" builds the program of them. On Debian the text of the GPL is in\n" +
			" /usr/share/common-licenses/GPL-2.\n"
	}
	return copyright
}

// compressData compresses data with gzip. The header contains no time and no name, so the result is reproducible.
func compressData(data []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // the level is valid
	w.Write(data)                                           // writes to memory do not fail
	w.Close()
	return out.Bytes()
}

// write writes the package file of the given kind.
func (b buildArgs) write(kind string, info *nfpm.Info) error {
	packager, err := nfpm.Get(kind)
	if err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, kind); err != nil {
		return err
	}
	name := fmt.Sprintf("%s_%s-%s_%s.deb", info.Name, b.version, release, info.Arch)
	if kind == "rpm" {
		name = fmt.Sprintf("%s-%s-%s.%s.rpm", info.Name, b.version, release, info.Arch)
	}
	path := filepath.Join(b.to, name)
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	if err = packager.Package(info, f); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
