// Package podspec goes through what a pod's spec names.
package podspec
