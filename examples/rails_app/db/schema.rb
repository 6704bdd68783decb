# frozen_string_literal: true

ActiveRecord::Schema.define(version: 1) do
  create_table "stops" do |table|
    table.string "name", null: false
    table.integer "kilometre", null: false
    table.text "description", null: false
  end

  create_table "notes" do |table|
    table.references "stop", null: false, foreign_key: true
    table.string "text", null: false
    table.datetime "created_at", null: false
  end

  add_index "stops", "kilometre", unique: true
end
