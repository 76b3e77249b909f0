module github.com/fenceguard/fenceguard/clients/go

go 1.19
