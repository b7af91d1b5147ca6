package config

import (
	"math"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// These constants limit the settings of devices, because every pattern is matched against every
// device whenever a device is added or removed.
const (
	maxDeviceClasses = 64
	maxDeviceMatches = 32
	maxPatterns      = 32
	maxPattern       = 255 // bytes
	maxShared        = 1000
)

// These characters may be in names of the kernel.
const (
	hexDigits   = "0123456789abcdefABCDEF"
	nameLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:+-"
)

// consistsOf reports whether all characters of s are in letters.
func consistsOf(s, letters string) bool { return strings.Trim(s, letters) == "" }

// checkDevices checks that each resource has a valid name. It also checks that no pattern matches a
// path outside of /dev, or every path below /dev.
func (c *checker) checkDevices(root *field.Path) {
	if n := len(c.edge.Devices); n > maxDeviceClasses {
		c.errs = append(c.errs, field.TooMany(root, n, maxDeviceClasses))
		return
	}
	seen := map[string]bool{}
	for i := range c.edge.Devices {
		d, at := &c.edge.Devices[i], root.Index(i)
		if why := badResource(d.Resource); why != "" {
			c.addInvalid(at.Child("resource"), d.Resource, "%s", why)
		}
		if seen[d.Resource] {
			c.errs = append(c.errs, field.Duplicate(at.Child("resource"), d.Resource))
		}
		seen[d.Resource] = true
		c.checkDeviceMatches(at.Child("match"), d.Match)
		c.checkDeviceAccess(at, d)
	}
}

// badResource returns the reason why a name is not valid for an extended resource, or "".
func badResource(name string) string {
	domain, _, ok := strings.Cut(name, "/")
	switch {
	case !ok:
		return "must have a domain, such as islet.dev/serial"
	case kubernetesOwned(name):
		return "must not be in the domain kubernetes.io or k8s.io"
	case strings.HasPrefix(domain, v1.DefaultResourceRequestsPrefix):
		return "must not begin with " + v1.DefaultResourceRequestsPrefix
	}
	// A ResourceQuota refers to the resource by its name with this prefix. So the name with the
	// prefix must not be too long.
	return strings.Join(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+name), "; ")
}

func (c *checker) checkDeviceMatches(at *field.Path, all []DeviceMatch) {
	switch n := len(all); {
	case n == 0:
		c.errs = append(c.errs, field.Required(at, "select devices by paths, usb, driver, subsystem or attributes"))
	case n > maxDeviceMatches:
		c.errs = append(c.errs, field.TooMany(at, n, maxDeviceMatches))
		return
	}
	for i := range all {
		c.checkDeviceMatch(at.Index(i), &all[i])
	}
}

func (c *checker) checkDeviceMatch(at *field.Path, m *DeviceMatch) {
	if len(m.Paths) == 0 && m.Driver == "" && m.Subsystem == "" && len(m.Attributes) == 0 && (m.USB == nil || *m.USB == (USBMatch{})) {
		c.errs = append(c.errs, field.Required(at,
			"an empty match would select every device: set paths, usb, driver, subsystem or attributes"))
	}
	if n := len(m.Paths) + len(m.Attributes); n > maxPatterns {
		c.errs = append(c.errs, field.TooMany(at, n, maxPatterns))
		return
	}
	for i, p := range m.Paths {
		if why := badDevicePath(p); why != "" {
			c.addInvalid(at.Child("paths").Index(i), p, "%s", why)
		}
	}
	if m.USB != nil {
		c.checkUSBMatch(at.Child("usb"), m.USB)
	}
	for name, value := range map[string]string{"driver": m.Driver, "subsystem": m.Subsystem} {
		if len(value) > maxPattern || !consistsOf(value, nameLetters) {
			c.addInvalid(at.Child(name), value, "must be a name as in /sys")
		}
	}
	for name, value := range m.Attributes {
		local := filepath.IsLocal(name) && path.Clean(name) == name && name != "."
		if !local || !consistsOf(name, nameLetters+"/") || len(name) > maxPattern {
			c.addInvalid(at.Child("attributes"), name, "must be the name of a file below the device's directory in /sys")
		}
		c.checkDevicePattern(at.Child("attributes").Key(name), value)
	}
}

func (c *checker) checkUSBMatch(at *field.Path, u *USBMatch) {
	for name, value := range map[string]string{"vendor": u.Vendor, "product": u.Product} {
		if value != "" && (len(value) != 4 || !consistsOf(value, hexDigits)) {
			c.addInvalid(at.Child(name), value, "must be four hexadecimal digits in quotes, as lsusb shows them")
		}
	}
	if u.Product != "" && u.Vendor == "" {
		c.errs = append(c.errs, field.Required(at.Child("vendor"), "product IDs are specific to a vendor"))
	}
	c.checkDevicePattern(at.Child("serial"), u.Serial)
}

func (c *checker) checkDevicePattern(at *field.Path, pattern string) {
	if _, err := path.Match(pattern, ""); err != nil || len(pattern) > maxPattern || strings.ContainsAny(pattern, "\n\x00") {
		c.addInvalid(at, pattern, "must be a pattern of at most %d bytes in the syntax of Go's path.Match", maxPattern)
	}
}

// badDevicePath returns the reason why a pattern is not valid for device paths, or "". A pattern
// must be below /dev and begin with a part of a name, because otherwise it would also match disks,
// memory and terminals.
func badDevicePath(p string) string {
	rest, ok := strings.CutPrefix(p, "/dev/")
	_, err := path.Match(p, "")
	switch {
	case !ok || rest == "":
		return "must be a pattern below /dev, such as /dev/ttyUSB*"
	case path.Clean(p) != p, strings.ContainsAny(p, "\n\x00"):
		return "must be a clean path: without . and .., double slashes, and a slash at its end"
	case err != nil || len(p) > maxPattern:
		return "must be a pattern of at most " + strconv.Itoa(maxPattern) + " bytes, in which each [ is closed"
	case strings.ContainsAny(rest[:1], `*?[\`):
		return "must begin with a part of a name: this would match the disks, the memory and the terminals of the host"
	}
	return ""
}

// checkDeviceAccess checks the settings for the use of a device in containers.
func (c *checker) checkDeviceAccess(at *field.Path, d *DeviceClass) {
	checkOneOf(c, at.Child("unit").String(), d.Unit, "", "node", "device", "all")
	once := func(letter string) bool { return strings.Count(d.Permissions, letter) <= 1 }
	if strings.Trim(d.Permissions, "rwm") != "" || !once("r") || !once("w") || !once("m") {
		c.addInvalid(at.Child("permissions"), d.Permissions, "must be a subset of r (read), w (write) and m (mknod)")
	}
	if d.Group != nil && !goodGroup(*d.Group) {
		c.addInvalid(at.Child("group"), d.Group.String(), "must be the number or the name of a group on the host other than root's")
	}
	if d.ContainerPath != "" {
		if why := badContainerPath(d.ContainerPath); why != "" {
			c.addInvalid(at.Child("containerPath"), d.ContainerPath, "%s", why)
		}
	}
	if d.Shared < 0 || d.Shared > maxShared {
		c.addInvalid(at.Child("shared"), d.Shared, "must be between 0 and %d, inclusive", maxShared)
	}
}

func goodGroup(g intstr.IntOrString) bool {
	if g.Type == intstr.Int {
		return g.IntVal > 0
	}
	n, err := strconv.ParseInt(g.StrVal, 10, 64)
	if err == nil {
		return n > 0 && n < math.MaxUint32
	}
	return g.StrVal != "" && g.StrVal != "root" && len(g.StrVal) <= 32 && consistsOf(g.StrVal, nameLetters)
}

// badContainerPath returns the reason why a device cannot have a path in a container, or "". Some
// files in /dev exist in every container.
func badContainerPath(p string) string {
	rest, ok := strings.CutPrefix(p, "/dev/")
	first, _, deeper := strings.Cut(rest, "/")
	if !ok || rest == "" || path.Clean(p) != p || len(p) > maxPattern || strings.ContainsAny(p, "*?[]\\\n\x00") {
		return "must be a clean path below /dev"
	}
	switch first {
	case "null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "pts", "shm", "mqueue", "fd",
		"stdin", "stdout", "stderr", "termination-log":
		if !deeper || first == "pts" || first == "shm" || first == "mqueue" || first == "fd" {
			return "already exists in every container"
		}
	}
	return ""
}
