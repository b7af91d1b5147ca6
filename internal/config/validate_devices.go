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

// Bounds of devices: a pattern is tried on every device each time that one comes or goes.
const (
	maxDeviceClasses = 64
	maxDeviceMatches = 32
	maxPatterns      = 32
	maxPattern       = 255 // bytes
	maxShared        = 1000
)

// Letters that names of the kernel's are made of.
const (
	hexadecimal = "0123456789abcdefABCDEF"
	lettersOf   = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:+-"
)

// made reports whether all of s is of some letters.
func made(s, letters string) bool { return strings.Trim(s, letters) == "" }

// devices checks that each resource can be one, and that no pattern leads out of /dev or
// means everything there.
func (c *checker) devices(root *field.Path) {
	if n := len(c.edge.Devices); n > maxDeviceClasses {
		c.errs = append(c.errs, field.TooMany(root, n, maxDeviceClasses))
		return
	}
	seen := map[string]bool{}
	for i := range c.edge.Devices {
		d, at := &c.edge.Devices[i], root.Index(i)
		if why := badResource(d.Resource); why != "" {
			c.invalid(at.Child("resource"), d.Resource, "%s", why)
		}
		if seen[d.Resource] {
			c.errs = append(c.errs, field.Duplicate(at.Child("resource"), d.Resource))
		}
		seen[d.Resource] = true
		c.deviceMatches(at.Child("match"), d.Match)
		c.deviceAccess(at, d)
	}
}

// badResource says why a name is not one of an extended resource.
func badResource(name string) string {
	domain, _, ok := strings.Cut(name, "/")
	switch {
	case !ok:
		return "must have a domain, such as islet.dev/serial"
	case kubernetesOwned(name):
		return "must not lie in kubernetes.io or k8s.io"
	case strings.HasPrefix(domain, v1.DefaultResourceRequestsPrefix):
		return "must not begin with " + v1.DefaultResourceRequestsPrefix
	}
	// It has a quota of that name.
	return strings.Join(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+name), "; ")
}

func (c *checker) deviceMatches(at *field.Path, all []DeviceMatch) {
	switch n := len(all); {
	case n == 0:
		c.errs = append(c.errs, field.Required(at, "say which devices: by paths, usb, driver, subsystem or attributes"))
	case n > maxDeviceMatches:
		c.errs = append(c.errs, field.TooMany(at, n, maxDeviceMatches))
		return
	}
	for i := range all {
		c.deviceMatch(at.Index(i), &all[i])
	}
}

func (c *checker) deviceMatch(at *field.Path, m *DeviceMatch) {
	if len(m.Paths) == 0 && m.Driver == "" && m.Subsystem == "" && len(m.Attributes) == 0 && (m.USB == nil || *m.USB == (USBMatch{})) {
		c.errs = append(c.errs, field.Required(at, "an empty one would match every device: give paths, usb, driver, subsystem or attributes"))
	}
	if n := len(m.Paths) + len(m.Attributes); n > maxPatterns {
		c.errs = append(c.errs, field.TooMany(at, n, maxPatterns))
		return
	}
	for i, p := range m.Paths {
		if why := badDevicePath(p); why != "" {
			c.invalid(at.Child("paths").Index(i), p, "%s", why)
		}
	}
	if u := m.USB; u != nil {
		for name, value := range map[string]string{"vendor": u.Vendor, "product": u.Product} {
			if value != "" && (len(value) != 4 || !made(value, hexadecimal)) {
				c.invalid(at.Child("usb", name), value, "must be four hexadecimal digits in quotes, as lsusb shows them")
			}
		}
		if u.Product != "" && u.Vendor == "" {
			c.errs = append(c.errs, field.Required(at.Child("usb", "vendor"), "products are numbered by their vendor"))
		}
		c.devicePattern(at.Child("usb", "serial"), u.Serial)
	}
	for name, value := range map[string]string{"driver": m.Driver, "subsystem": m.Subsystem} {
		if len(value) > maxPattern || !made(value, lettersOf) {
			c.invalid(at.Child(name), value, "must be a name as /sys has it")
		}
	}
	for name, value := range m.Attributes {
		if !filepath.IsLocal(name) || path.Clean(name) != name || name == "." || !made(name, lettersOf+"/") || len(name) > maxPattern {
			c.invalid(at.Child("attributes"), name, "must be the name of a file below the device's directory in /sys")
		}
		c.devicePattern(at.Child("attributes").Key(name), value)
	}
}

func (c *checker) devicePattern(at *field.Path, pattern string) {
	if _, err := path.Match(pattern, ""); err != nil || len(pattern) > maxPattern || strings.ContainsAny(pattern, "\n\x00") {
		c.invalid(at, pattern, "must be a pattern of at most %d bytes, as path.Match of Go has them", maxPattern)
	}
}

// badDevicePath says why a pattern cannot be one of devices. It leads nowhere but to /dev,
// and begins with some of a name: else it would mean disks, memory and terminals too.
func badDevicePath(p string) string {
	rest, ok := strings.CutPrefix(p, "/dev/")
	_, err := path.Match(p, "")
	switch {
	case !ok || rest == "":
		return "must be a pattern below /dev, such as /dev/ttyUSB*"
	case path.Clean(p) != p, strings.ContainsAny(p, "\n\x00"):
		return "must be a plain path: without . and .., double slashes, a slash at its end"
	case err != nil || len(p) > maxPattern:
		return "must be a pattern of at most " + strconv.Itoa(maxPattern) + " bytes, in which each [ is closed"
	case strings.ContainsAny(rest[:1], `*?[\`):
		return "must begin with some of a name: this would match the disks, the memory and the terminals of the host"
	}
	return ""
}

// deviceAccess checks how a container gets the devices.
func (c *checker) deviceAccess(at *field.Path, d *DeviceClass) {
	oneOf(c, at.Child("unit").String(), d.Unit, "", "node", "device", "all")
	if p := d.Permissions; len(p) > 3 || strings.Trim(p, "rwm") != "" || strings.Count(p, "r") > 1 || strings.Count(p, "w") > 1 || strings.Count(p, "m") > 1 {
		c.invalid(at.Child("permissions"), p, "must be some of r (read), w (write) and m (make nodes)")
	}
	if d.Group != nil && !goodGroup(*d.Group) {
		c.invalid(at.Child("group"), d.Group.String(), "must be the number of a group, not root's, or the name of one of the host")
	}
	if d.ContainerPath != "" {
		if why := badContainerPath(d.ContainerPath); why != "" {
			c.invalid(at.Child("containerPath"), d.ContainerPath, "%s", why)
		}
	}
	if d.Shared < 0 || d.Shared > maxShared {
		c.invalid(at.Child("shared"), d.Shared, "must be between 0 and %d, inclusive", maxShared)
	}
}

func goodGroup(g intstr.IntOrString) bool {
	if g.Type == intstr.Int {
		return g.IntVal > 0
	}
	n, err := strconv.ParseInt(g.StrVal, 10, 64)
	return err == nil && n > 0 && n < math.MaxUint32 || err != nil && g.StrVal != "" && g.StrVal != "root" && len(g.StrVal) <= 32 && made(g.StrVal, lettersOf)
}

// badContainerPath says why a device cannot be there in a container: the runtime has its
// own files in /dev.
func badContainerPath(p string) string {
	rest, ok := strings.CutPrefix(p, "/dev/")
	first, _, deeper := strings.Cut(rest, "/")
	if !ok || rest == "" || path.Clean(p) != p || len(p) > maxPattern || strings.ContainsAny(p, "*?[]\\\n\x00") {
		return "must be a plain path below /dev"
	}
	switch first {
	case "null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "pts", "shm", "mqueue", "fd", "stdin", "stdout", "stderr", "termination-log":
		if !deeper || first == "pts" || first == "shm" || first == "mqueue" || first == "fd" {
			return "is what every container has"
		}
	}
	return ""
}
