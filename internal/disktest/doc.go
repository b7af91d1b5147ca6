// Package disktest gives a test a small disk that the test can fill.
//
//	New --mount--> Dir <--files of the package under test
//	Fill --file "fill"--> no space left --Free--> space
package disktest
