// Package recovery fills a store that was lost with what runs. Each sandbox carries
// the manifest of its pod, by the hook Manifest; Rebuild reads them back.
package recovery
