# frozen_string_literal: true

module Thruway
  # Compiles Ruby files without running them, and reads YAML files, so that a pack contains the
  # results before they are needed. `thruway pack build --compile` runs this file.
  class Precompiler
    # The options with which I18n reads translations.
    TRANSLATIONS = { symbolize_names: true, freeze: true }.freeze

    def initialize
      # Ruby compiles a file and then runs it. The event comes in between, and a throw leaves
      # `load`. An exception would not do, because a gem's patched `load` could rescue it. Code
      # without lines does nothing when it runs, or then raises its syntax error.
      @end = TracePoint.new(:script_compiled) do |event|
        code = event.instruction_sequence
        throw self if code&.path == @path && code.trace_points.any?
      end
    end

    # Compiles the Ruby files among `paths` and below them, and reads the YAML files.
    def add(paths, &trouble)
      paths.flat_map { |path| files_of(path) }.uniq.each do |file|
        file.end_with?(".yml", ".yaml") ? read(file) : compile(file)
      rescue SyntaxError, StandardError => e
        trouble&.call(file, e)
      end
    end

    # The folders of the bundle's gems that `require` searches.
    def gem_folders
      require "bundler"
      folders = Bundler.definition.specs.flat_map(&:full_require_paths)
      folders.select { |folder| File.directory?(folder) }
    end

    private

    def files_of(path)
      return [path] unless File.directory?(path)

      Dir.glob("**/*.{rb,yml,yaml}", base: path).sort.map { |name| File.join(path, name) }
         .select { |file| File.file?(file) }
    end

    def compile(path)
      @path = path
      catch(self) do
        @end.enable do
          Boot.see_first
          load(path)
        end
      end
    end

    # Reads a file in both ways, because either may refuse a document that the other accepts.
    def read(path)
      require "yaml"
      YAML.parse_file(path)
      ways = [-> { YAML.load_file(path) }, -> { YAML.unsafe_load_file(path, **TRANSLATIONS) }]
      ways.each do |load|
        load.call
      rescue StandardError
        nil
      end
    end
  end
end

# The arguments are `--gems` or `--no-gems`, and then paths.
if $PROGRAM_NAME == __FILE__
  require_relative "../boot"
  abort "thruway: cannot compile: this Ruby does not boot from a pack" unless Thruway::Boot.running?

  begin
    precompiler = Thruway::Precompiler.new
    gems = ARGV.shift == "--gems" ? precompiler.gem_folders : []
  rescue StandardError => e
    abort "thruway: cannot list the gems of the bundle: #{e.message.lines.first}"
  end
  # Errors in gems are ignored, because gems contain templates and files for other Rubies.
  precompiler.add(gems)
  precompiler.add(ARGV) do |path, error|
    reason = error.message.delete_prefix("#{path}:").lines.first
    warn "thruway: skipped #{path}: #{reason}"
  end
end
