# What flake.nix says, as data: every output with the arguments that the stand-in's functions were given.
{ flake }:
let
  nixpkgs = import ./nixpkgs.nix;
  self = outputs // {
    outPath = toString (dirOf flake);
  };
  outputs = (import flake).outputs { inherit self nixpkgs; };
  each = f: builtins.mapAttrs (_: builtins.mapAttrs (_: f));
  seen =
    package:
    package.saw
    // {
      inherit (package) name;
      store = package.outPath;
    };
in
{
  systems = builtins.attrNames outputs.packages;
  formatter = builtins.mapAttrs (_: package: package.name) outputs.formatter;
  packages = each seen outputs.packages;
  devShells = each seen outputs.devShells;
  checks = each seen outputs.checks;
  apps = each (app: { inherit (app) type program; }) outputs.apps;
}
