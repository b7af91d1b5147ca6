// Package podspec lists parts of a pod's spec: its containers, its images and the objects that it
// refers to.
package podspec
