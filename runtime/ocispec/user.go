package ocispec

import (
	"bufio"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// User finds the IDs that a container runs with: by what its configuration asks
// for, else by the image's user ("name", "uid", "uid:gid", "name:group"). Names
// and group memberships are looked up in the image's own files.
func User(root fs.FS, sec *api.LinuxContainerSecurityContext, image string) (specs.User, error) {
	name, group, _ := strings.Cut(image, ":")
	switch {
	case sec.GetRunAsUser() != nil:
		name, group = strconv.FormatInt(sec.GetRunAsUser().GetValue(), 10), ""
	case sec.GetRunAsUsername() != "":
		name, group = sec.GetRunAsUsername(), ""
	}
	if name == "" {
		name = "0"
	}
	out, login, err := lookupUser(root, name)
	if err != nil {
		return specs.User{}, err
	}
	if group != "" {
		if out.GID, err = lookupGroup(root, group); err != nil {
			return specs.User{}, err
		}
	}
	if g := sec.GetRunAsGroup(); g != nil {
		out.GID = uint32(g.GetValue())
	}
	add := func(gid uint32) {
		if !slices.Contains(out.AdditionalGids, gid) {
			out.AdditionalGids = append(out.AdditionalGids, gid)
		}
	}
	add(out.GID)
	if sec.GetSupplementalGroupsPolicy() == api.SupplementalGroupsPolicy_Merge && login != "" {
		for _, e := range entries(root, "etc/group", 4) {
			if slices.Contains(strings.Split(e[3], ","), login) {
				if gid, err := strconv.ParseUint(e[2], 10, 32); err == nil {
					add(uint32(gid))
				}
			}
		}
	}
	for _, g := range sec.GetSupplementalGroups() {
		add(uint32(g))
	}
	return out, nil
}

// lookupUser finds a user by name or number; a number needs no entry.
func lookupUser(root fs.FS, name string) (u specs.User, login string, err error) {
	uid, numErr := strconv.ParseUint(name, 10, 32)
	for _, e := range entries(root, "etc/passwd", 4) {
		if e[0] != name && (numErr != nil || e[2] != name) {
			continue
		}
		id, err1 := strconv.ParseUint(e[2], 10, 32)
		gid, err2 := strconv.ParseUint(e[3], 10, 32)
		if err1 == nil && err2 == nil {
			return specs.User{UID: uint32(id), GID: uint32(gid)}, e[0], nil
		}
	}
	if numErr != nil {
		return specs.User{}, "", fmt.Errorf("no user %q in the image's /etc/passwd", name)
	}
	return specs.User{UID: uint32(uid)}, "", nil
}

func lookupGroup(root fs.FS, name string) (uint32, error) {
	for _, e := range entries(root, "etc/group", 4) {
		if e[0] == name {
			gid, err := strconv.ParseUint(e[2], 10, 32)
			return uint32(gid), err
		}
	}
	gid, err := strconv.ParseUint(name, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("no group %q in the image's /etc/group", name)
	}
	return uint32(gid), nil
}

// entries reads a file of lines with fields between colons; those with fewer than
// n fields are left out, as is a file that is not there.
func entries(root fs.FS, path string, n int) [][]string {
	f, err := root.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	var out [][]string
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if e := strings.Split(strings.TrimSpace(sc.Text()), ":"); len(e) >= n {
			out = append(out, e)
		}
	}
	return out
}
