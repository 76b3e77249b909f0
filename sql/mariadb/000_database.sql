-- Installs or upgrades the fences in the database fenceguard. For another database: the files 001 on, in that.
CREATE DATABASE IF NOT EXISTS fenceguard CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
//
USE fenceguard
//
