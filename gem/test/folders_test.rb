# frozen_string_literal: true

require "minitest/autorun"

# The folders of `gem/lib/thruway` require one another in one direction only, given by the table in
# `gem/README.md`.
class FoldersTest < Minitest::Test
  LIBRARY = File.expand_path("../lib/thruway", __dir__)
  ORDER = File.read(File.expand_path("../README.md", __dir__)).scan(%r{^\| `(\w+)/` \|}).flatten

  # Returns the pairs of folders of which the first requires the second, each with the file.
  def requirements
    Dir["#{LIBRARY}/*/**/*.rb"].flat_map do |file|
      File.read(file).scan(/^\s*require_relative "(.+)"/).flatten.map do |name|
        [folder_of(file), folder_of(File.expand_path(name, File.dirname(file))), file]
      end
    end
  end

  # The folder of a file; nil for a file directly in the library.
  def folder_of(path)
    path.delete_prefix("#{LIBRARY}/")[%r{\A(\w+)/}, 1]
  end

  def test_every_folder_is_in_the_readme
    text = File.read(File.expand_path("../README.md", __dir__))
    folders = Dir["#{LIBRARY}/*/"].map { |path| File.basename(path) } - ["cable"]
    assert_empty(folders.reject { |folder| text.include?("`#{folder}/`") })
  end

  def test_folders_require_only_those_below_them
    upward = requirements.select do |from, to, _|
      ORDER.include?(from) && ORDER.include?(to) && ORDER.index(to) < ORDER.index(from)
    end
    assert_empty upward
    assert_operator requirements.size, :>, 50, "the files are found"
  end
end
