// Package bundletest writes small images and source directories for tests of bundles.
package bundletest
