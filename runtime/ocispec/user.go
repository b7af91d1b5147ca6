package ocispec

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/keys"
)

// MaxUserFile is the maximum size of an image's /etc/passwd and /etc/group, in bytes.
const MaxUserFile = 10 << 20

// ReadFile reads a file of a container's root file system, such as "etc/passwd". It must not block
// on special files, and must limit the size of its result.
type ReadFile func(name string) ([]byte, error)

// User returns the user and group IDs of a container. The user comes from the configuration, or by
// default from the image ("name", "uid", "uid:gid", "name:group"). Names and group memberships
// are looked up in the files of the image.
//
// As the CRI specifies, a group without a user in the configuration is an error.
//
// A number is always an ID, even if a user has that name. An ID above math.MaxInt32 is an error,
// because OCI runtimes reject it. UID 0 is an error if the configuration has the annotation
// keys.RunAsNonRoot.
func User(read ReadFile, c *api.ContainerConfig, image string) (specs.User, error) {
	sec := c.GetLinux().GetSecurityContext()
	if sec.GetRunAsGroup() != nil && sec.GetRunAsUser() == nil && sec.GetRunAsUsername() == "" {
		return specs.User{}, fmt.Errorf("runAsGroup is set without a user: %w", errdefs.ErrInvalidArgument)
	}
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
	out, login, err := lookupUser(read, name)
	if err != nil {
		return specs.User{}, err
	}
	if out.UID == 0 && c.GetAnnotations()[keys.RunAsNonRoot] != "" {
		return specs.User{}, fmt.Errorf("container has runAsNonRoot and image will run as root: its user %q has UID 0", name)
	}
	if group != "" {
		if out.GID, err = lookupGroup(read, group); err != nil {
			return specs.User{}, err
		}
	}
	if g := sec.GetRunAsGroup(); g != nil {
		if out.GID, err = inRange("runAsGroup", g.GetValue()); err != nil {
			return specs.User{}, err
		}
	}
	return withGroups(read, sec, out, login)
}

// withGroups adds the supplemental groups of the configuration and, with the policy Merge, the
// groups of the user in the image.
func withGroups(read ReadFile, sec *api.LinuxContainerSecurityContext, out specs.User, login string) (specs.User, error) {
	add := func(gid uint32) {
		if !slices.Contains(out.AdditionalGids, gid) {
			out.AdditionalGids = append(out.AdditionalGids, gid)
		}
	}
	add(out.GID)
	if sec.GetSupplementalGroupsPolicy() == api.SupplementalGroupsPolicy_Merge && login != "" {
		groups, err := readEntries(read, "etc/group")
		if err != nil {
			return specs.User{}, err
		}
		for e := range groups {
			if gid, ok := parseID(e[2]); ok && slices.Contains(strings.Split(e[3], ","), login) {
				add(gid)
			}
		}
	}
	for _, g := range sec.GetSupplementalGroups() {
		gid, err := inRange("supplemental group", g)
		if err != nil {
			return specs.User{}, err
		}
		add(gid)
	}
	return out, nil
}

// HomeDir returns the home directory of a user in /etc/passwd, or "/" if there is none. OCI runtimes
// set HOME in the same way if it is unset, but they read /etc/passwd in the container, where the
// pod may have replaced it. With HOME set, crun does not read the file.
func HomeDir(read ReadFile, uid uint32) string {
	users, err := readEntries(read, "etc/passwd")
	if err != nil {
		return "/"
	}
	for e := range users {
		if id, ok := parseID(e[2]); !ok || id != uid || len(e) <= minFields {
			continue
		}
		if rest := strings.Split(e[minFields], ":"); len(rest) > 1 && path.IsAbs(rest[1]) && !strings.Contains(rest[1], "\x00") {
			return rest[1]
		}
		break
	}
	return "/"
}

// lookupUser returns the user with a name or a UID, and its name in /etc/passwd. A UID needs no
// entry there.
func lookupUser(read ReadFile, name string) (u specs.User, login string, err error) {
	uid, isNumber, err := parseNumber("user", name)
	if err != nil {
		return specs.User{}, "", err
	}
	users, err := readEntries(read, "etc/passwd")
	if err != nil {
		return specs.User{}, "", err
	}
	for e := range users {
		id, okUser := parseID(e[2])
		gid, okGroup := parseID(e[3])
		switch {
		case isNumber && okUser && okGroup && id == uid:
			return specs.User{UID: uid, GID: gid}, e[0], nil
		case !isNumber && e[0] == name && okUser && okGroup:
			return specs.User{UID: id, GID: gid}, name, nil
		case !isNumber && e[0] == name:
			return specs.User{}, "", fmt.Errorf("user %q has no IDs from 0 to %d in the image's /etc/passwd", name, math.MaxInt32)
		}
	}
	if !isNumber {
		return specs.User{}, "", fmt.Errorf("no user %q in the image's /etc/passwd", name)
	}
	return specs.User{UID: uid}, "", nil
}

func lookupGroup(read ReadFile, name string) (uint32, error) {
	gid, isNumber, err := parseNumber("group", name)
	if err != nil || isNumber {
		return gid, err
	}
	groups, err := readEntries(read, "etc/group")
	if err != nil {
		return 0, err
	}
	for e := range groups {
		if e[0] != name {
			continue
		}
		if gid, ok := parseID(e[2]); ok {
			return gid, nil
		}
		return 0, fmt.Errorf("group %q has no ID from 0 to %d in the image's /etc/group", name, math.MaxInt32)
	}
	return 0, fmt.Errorf("no group %q in the image's /etc/group", name)
}

// parseNumber parses an ID. It returns false if the text is a name. A number out of range is an error. The text of the error
// begins with the given description.
func parseNumber(what, s string) (id uint32, isNumber bool, err error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if errors.Is(err, strconv.ErrSyntax) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("%s %s: an ID is from 0 to %d", what, s, math.MaxInt32)
	}
	id, err = inRange(what, n)
	return id, true, err
}

func inRange(what string, n int64) (uint32, error) {
	if n < 0 || n > math.MaxInt32 {
		return 0, fmt.Errorf("%s %d: an ID is from 0 to %d", what, n, math.MaxInt32)
	}
	return uint32(n), nil
}

// parseID parses the ID in a line of passwd or group. The parser of moby/sys/user is not used,
// because it returns 0 for an invalid number.
func parseID(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return uint32(n), err == nil
}

// minFields is the minimum number of fields in a line of passwd or group.
const minFields = 4

// readEntries reads passwd or group and returns an iterator over the fields of each line. Lines
// with fewer than minFields fields are skipped. A missing file has no lines.
func readEntries(read ReadFile, name string) (func(yield func([]string) bool), error) {
	b, err := read(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		b, err = nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the image's /%s cannot be used: %w", name, err)
	}
	return func(yield func([]string) bool) {
		for line := range strings.Lines(string(b)) {
			if e := strings.SplitN(strings.TrimSpace(line), ":", minFields+1); len(e) >= minFields && !yield(e) {
				return
			}
		}
	}, nil
}
