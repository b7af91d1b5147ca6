package bundle

import (
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/api"
)

// TestBundleConfigurationStatus checks that islet bundle status shows the configuration below the bundle to which it belongs.
func TestBundleConfigurationStatus(t *testing.T) {
	one, two := &api.Bundle{Name: "kiosk", Number: 1}, &api.Bundle{Name: "kiosk", Number: 2}
	used := &api.BundleConfiguration{ID: "4f2a", InUse: true}
	for want, s := range map[string]api.Bundles{
		"in use     kiosk number 1, \n           configuration 4f2a, in use\n": {Current: one, Configuration: used},
		"in use     kiosk number 1, \n           configuration 4f2a, NOT in use: another one was sent since (islet config show)\n": {
			Current: one, Configuration: &api.BundleConfiguration{ID: "4f2a"}},
		"in use     kiosk number 1, \n           configuration 4f2a, in use\non trial   kiosk number 2, \n" +
			"           its configuration is tried first (islet config show)\n": {
			Current: one, Trial: two, Configuring: true, Configuration: used},
		"in use     kiosk number 1, \n           the agent returns to the configuration before the bundle\n": {
			Current: one, Returning: true, Configuration: &api.BundleConfiguration{ID: "4f2a"}},
		"in use     kiosk number 1, \non trial   kiosk number 2, \n           configuration 4f2a, in use\n": {
			Current: one, Trial: two, Configuration: used},
	} {
		var out strings.Builder
		printBundles(&out, &s)
		if out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
}
