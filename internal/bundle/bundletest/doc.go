// Package bundletest writes small images and source directories for tests of bundles, and makes hostile changes to signed bundles.
package bundletest
