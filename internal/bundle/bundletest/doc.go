// Package bundletest writes small images and source directories for tests of bundles, makes hostile changes to signed bundles, and reads
// bundles from registries.
package bundletest
